#include <chorus/tensor/ops/norm.h>
#include <gmock/gmock.h>

#include <cmath>

#include "op_cases/op_case.h"

namespace chorus::testing {
namespace {

constexpr double eps = 1e-2;
constexpr std::uint64_t mean_stream = 21, variance_stream = 22;

std::vector<Shape> with_weight(Size s) { return {{s.rows, s.cols}, {s.cols}}; }
std::vector<Shape> with_weight_and_bias(Size s) { return {{s.rows, s.cols}, {s.cols}, {s.cols}}; }
/// The gradient of x sums over a row, those of weight and bias over the rows.
double both_sums(Size s) { return static_cast<double>(std::max(s.rows, s.cols)); }

/// The reference: normal(row values) gives the row before weight and bias.
template <class F>
auto by_row(F normal) {
  return [normal](const Values& x, Size s) {
    std::vector<double> y;
    const auto n = static_cast<std::size_t>(s.cols);
    for (std::size_t r = 0; r < static_cast<std::size_t>(s.rows); ++r) {
      const auto row = normal(std::vector<double>(x[0].begin() + static_cast<std::ptrdiff_t>(r * n),
                                                  x[0].begin() + static_cast<std::ptrdiff_t>((r + 1) * n)));
      for (std::size_t c = 0; c < n; ++c) y.push_back(row[c] * x[1][c] + (x.size() > 2 ? x[2][c] : 0));
    }
    return y;
  };
}

double mean(const std::vector<double>& x) {
  double total = 0;
  for (const double v : x) total += v;
  return total / static_cast<double>(x.size());
}
double mean_square(const std::vector<double>& x) {
  return mean(map(x, [](double v) { return v * v; }));
}

TEST(Norm, Rms) {
  check({.name = "rms_norm",
         .shapes = with_weight,
         .op = [](Context&, const Tensors& x) { return rms_norm(x[0], x[1], eps); },
         .reference = by_row([](const std::vector<double>& row) {
           const double factor = 1 / std::sqrt(mean_square(row) + eps);
           return map(row, [&](double v) { return v * factor; });
         }),
         .grad_terms = both_sums,
         .floor = 1e-1});
}

TEST(Norm, Layer) {
  check({.name = "layer_norm",
         .shapes = with_weight_and_bias,
         .op = [](Context&, const Tensors& x) { return layer_norm(x[0], x[1], x[2], eps); },
         .reference = by_row([](const std::vector<double>& row) {
           const double middle = mean(row);
           const auto centred = map(row, [&](double v) { return v - middle; });
           const double factor = 1 / std::sqrt(mean_square(centred) + eps);
           return map(centred, [&](double v) { return v * factor; });
         }),
         .terms = [](Size) { return 4.0; },
         .grad_terms = both_sums,
         .floor = 1e-1});
}

TEST(Norm, Fixed) {
  const auto statistics = [](Context& context, std::int64_t n, DType type) {
    Tensor middle = Tensor::empty(context, {n}, type), variance = Tensor::empty(context, {n}, type);
    dispatch<float, double>(type, "statistics", [&]<class T>() {
      for (std::int64_t c = 0; c < n; ++c) {
        middle.as<T>()[c] = static_cast<T>(test_value(mean_stream, static_cast<std::uint64_t>(c), 1));
        variance.as<T>()[c] = static_cast<T>(0.5 + std::abs(test_value(variance_stream, static_cast<std::uint64_t>(c), 1)));
      }
    });
    return std::pair{middle, variance};
  };
  check({.name = "fixed_norm",
         .shapes = with_weight_and_bias,
         .op =
             [=](Context& context, const Tensors& x) {
               const auto [middle, variance] = statistics(context, x[0].cols(), wide(x[0].dtype()));
               return fixed_norm(x[0], middle, variance, x[1], x[2], eps);
             },
         .reference = by_row([](const std::vector<double>& row) {
           auto y = row;
           for (std::size_t c = 0; c < y.size(); ++c)
             y[c] = (y[c] - test_value(mean_stream, c, 1)) / std::sqrt(0.5 + std::abs(test_value(variance_stream, c, 1)) + eps);
           return y;
         }),
         .grad_terms = both_sums});
}

TEST(Norm, LayerNormKeepsItsPrecisionFarFromZero) {
  // 1e4 + {-1, 1}: the mean square minus the squared mean would have lost the variance in float.
  Context context;
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1e4f + (i % 2 ? 1.0f : -1.0f);
  const Tensor one = Tensor::full(context, {64}, DType::f32, 1), zero = Tensor::zeros(context, {64}, DType::f32);
  const auto y = layer_norm(Tensor::of(context, {1, 64}, values), one, zero, 1e-5).to_doubles();
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], i % 2 ? 1 : -1, 1e-5) << i;
}

TEST(Norm, SavesTheInputAndStatisticsButNotItsOutput) {
  Context context;
  Tensor x = Tensor::full(context, {4, 8}, DType::f32, 1), weight = Tensor::full(context, {8}, DType::f32, 1);
  make_leaf(x, Tensor::zeros(context, {4, 8}, DType::f32));
  const Tensor y = rms_norm(x, weight, eps);
  for (const Tensor& saved : y.node()->saved) EXPECT_NE(saved.data(), y.data());
}

TEST(Norm, ErrorsNameWhatIsWrong) {
  Context context;
  const Tensor x = Tensor::zeros(context, {2, 3}, DType::f32), weight = Tensor::zeros(context, {4}, DType::f32);
  try {
    rms_norm(x, weight, eps);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("rms_norm: weight of f32 (2, 3) is f32 (4)")));
  }
}

}  // namespace
}  // namespace chorus::testing
