#include <chorus/tensor/ops/pointwise.h>
#include <gmock/gmock.h>

#include <cmath>

#include "op_cases/op_case.h"

namespace chorus::testing {
namespace {

std::vector<Shape> one(Size s) { return {{s.rows, s.cols}}; }
std::vector<Shape> two(Size s) { return {{s.rows, s.cols}, {s.rows, s.cols}}; }
std::vector<Shape> two_halves(Size s) { return {{s.rows, 2 * s.cols}}; }
double one_term(Size) { return 1; }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// The reference of an op on pairs of elements.
template <class F>
auto pairwise(F f) {
  return [f](const Values& x, Size) {
    std::vector<double> y;
    for (std::size_t i = 0; i < x[0].size(); ++i) y.push_back(f(x[0][i], x[1][i]));
    return y;
  };
}

/// The reference of a gate: f(left, right) of rows that hold left, then right.
template <class F>
auto halves(F f) {
  return [f](const Values& x, Size s) {
    std::vector<double> y;
    for (std::int64_t r = 0; r < s.rows; ++r)
      for (std::int64_t c = 0; c < s.cols; ++c) {
        const auto left = static_cast<std::size_t>(r * 2 * s.cols + c);
        y.push_back(f(x[0][left], x[0][left + static_cast<std::size_t>(s.cols)]));
      }
    return y;
  };
}

TEST(Pointwise, Add) {
  check({.name = "add",
         .shapes = two,
         .op = [](Context&, const Tensors& x) { return add(x[0], x[1]); },
         .reference = pairwise([](double a, double b) { return a + b; }),
         .grad_terms = one_term});
}

TEST(Pointwise, AddTheSameTensorTwice) {
  check({.name = "add to itself",
         .shapes = one,
         .op = [](Context&, const Tensors& x) { return add(x[0], x[0]); },
         .reference = [](const Values& x, Size) { return map(x[0], [](double v) { return 2 * v; }); },
         .grad_terms = one_term});
}

TEST(Pointwise, AddScaled) {
  check({.name = "add_scaled",
         .shapes = two,
         .op = [](Context&, const Tensors& x) { return add_scaled(x[0], x[1], -0.3); },
         .reference = pairwise([](double a, double b) { return a - 0.3 * b; }),
         .grad_terms = one_term});
}

TEST(Pointwise, AddRow) {
  check({.name = "add_row",
         .shapes =
             [](Size s) {
               return std::vector<Shape>{{s.rows, s.cols}, {s.cols}};
             },
         .op = [](Context&, const Tensors& x) { return add_row(x[0], x[1]); },
         .reference =
             [](const Values& x, Size s) {
               auto y = x[0];
               for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[1][i % static_cast<std::size_t>(s.cols)];
               return y;
             },
         .sizes = {{0, 17}, {1, 1}, {3, 17}, {17, 3}, {65, 130}, {300, 257}}});
}

TEST(Pointwise, Mul) {
  check({.name = "mul",
         .shapes = two,
         .op = [](Context&, const Tensors& x) { return mul(x[0], x[1]); },
         .reference = pairwise([](double a, double b) { return a * b; }),
         .grad_terms = one_term});
}

TEST(Pointwise, Scale) {
  check({.name = "scale",
         .shapes = one,
         .op = [](Context&, const Tensors& x) { return scale(x[0], 0.7); },
         .reference = [](const Values& x, Size) { return map(x[0], [](double v) { return 0.7 * v; }); },
         .grad_terms = one_term});
}

TEST(Pointwise, Relu) {
  check({.name = "relu",
         .shapes = one,
         .op = [](Context&, const Tensors& x) { return relu(x[0]); },
         .reference = [](const Values& x, Size) { return map(x[0], [](double v) { return v > 0 ? v : 0; }); },
         .grad_terms = one_term});
}

TEST(Pointwise, Silu) {
  check({.name = "silu",
         .shapes = one,
         .op = [](Context&, const Tensors& x) { return silu(x[0]); },
         .reference = [](const Values& x, Size) { return map(x[0], [](double v) { return v * sigmoid(v); }); },
         .grad_terms = one_term,
         .range = 16});
}

TEST(Pointwise, Swiglu) {
  check({.name = "swiglu",
         .shapes = two_halves,
         .op = [](Context&, const Tensors& x) { return swiglu(x[0]); },
         .reference = halves([](double l, double r) { return l * sigmoid(l) * r; }),
         .grad_terms = one_term,
         .range = 4});
}

TEST(Pointwise, Glu) {
  check({.name = "glu",
         .shapes = two_halves,
         .op = [](Context&, const Tensors& x) { return glu(x[0]); },
         .reference = halves([](double l, double r) { return l * sigmoid(r); }),
         .grad_terms = one_term,
         .range = 4});
}

TEST(Pointwise, CastThereAndBack) {
  check({.name = "cast",
         .shapes = one,
         .op = [](Context&, const Tensors& x) { return cast(cast(x[0], DType::f64), x[0].dtype()); },
         .reference = [](const Values& x, Size) { return x[0]; },
         .grad_terms = one_term});
}

TEST(Pointwise, CastRoundsToNearestEven) {
  Context context;
  const Tensor x =
      Tensor::of<float>(context, {5}, std::vector<float>{0x1.01p0f, 0x1.03p0f, 0x1.010002p0f, -0x1.01p0f, 0x1.fffffep127f});
  const auto y = cast(x, DType::bf16).to_doubles();
  EXPECT_THAT(y, ::testing::ElementsAre(1, 0x1.04p0, 0x1.02p0, -1, std::numeric_limits<double>::infinity()));
  const Tensor nan = Tensor::full(context, {17}, DType::f32, std::bit_cast<float>(0x7f800001u));
  for (const double v : cast(nan, DType::bf16).to_doubles()) EXPECT_TRUE(std::isnan(v));
}

TEST(Pointwise, Sum) {
  check({.name = "sum",
         .shapes = one,
         .op = [](Context&, const Tensors& x) { return sum(x[0]); },
         .reference =
             [](const Values& x, Size) {
               double total = 0;
               for (const double v : x[0]) total += v;
               return std::vector<double>{total};
             },
         .terms = [](Size s) { return static_cast<double>(s.rows * s.cols + 1); },
         .grad_terms = one_term});
}

TEST(Pointwise, Softmax) {
  check({.name = "softmax",
         .shapes = one,
         .op = [](Context&, const Tensors& x) { return softmax(x[0]); },
         .reference =
             [](const Values& x, Size s) {
               std::vector<double> y;
               for (std::int64_t r = 0; r < s.rows; ++r) {
                 double total = 0;
                 const auto at = [&](std::int64_t c) { return std::exp(x[0][static_cast<std::size_t>(r * s.cols + c)]); };
                 for (std::int64_t c = 0; c < s.cols; ++c) total += at(c);
                 for (std::int64_t c = 0; c < s.cols; ++c) y.push_back(at(c) / total);
               }
               return y;
             },
         .grad_terms = [](Size s) { return static_cast<double>(s.cols); },
         .floor = 1e-2,
         .range = 4});
}

TEST(Pointwise, SoftmaxOfHugeValuesIsFinite) {
  Context context;
  const Tensor x = Tensor::of<float>(context, {1, 3}, std::vector<float>{3e38f, -3e38f, 3e38f});
  EXPECT_THAT(softmax(x).to_doubles(), ::testing::ElementsAre(0.5, 0, 0.5));
}

TEST(Pointwise, ErrorsNameOpAndShapes) {
  Context context;
  const Tensor a = Tensor::zeros(context, {2, 3}, DType::f32), b = Tensor::zeros(context, {3, 2}, DType::f32);
  const Tensor half = Tensor::zeros(context, {2, 3}, DType::bf16), ids = Tensor::zeros(context, {2, 3}, DType::i32);
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message([&] { add(a, b); }), ::testing::AllOf(HasSubstr("add: "), HasSubstr("(2, 3)"), HasSubstr("(3, 2)")));
  EXPECT_THAT(message([&] { mul(a, half); }), ::testing::AllOf(HasSubstr("mul: "), HasSubstr("bf16")));
  EXPECT_THAT(message([&] { relu(ids); }), ::testing::AllOf(HasSubstr("relu: "), HasSubstr("i32")));
  EXPECT_THAT(message([&] { swiglu(a); }), ::testing::AllOf(HasSubstr("swiglu: "), HasSubstr("(2, 3)")));
  EXPECT_THAT(message([&] { add_row(a, b); }), ::testing::AllOf(HasSubstr("add_row: "), HasSubstr("(3, 2)")));
}

}  // namespace
}  // namespace chorus::testing
