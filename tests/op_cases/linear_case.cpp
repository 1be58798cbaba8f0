#include <chorus/tensor/ops/linear.h>

#include "op_cases/op_case.h"

namespace chorus::testing {
namespace {

constexpr std::int64_t outputs = 5;

std::vector<double> product(const Values& x, Size s) {
  std::vector<double> y;
  for (std::int64_t r = 0; r < s.rows; ++r)
    for (std::int64_t o = 0; o < outputs; ++o) {
      double sum = x.size() > 2 ? x[2][static_cast<std::size_t>(o)] : 0;
      for (std::int64_t c = 0; c < s.cols; ++c)
        sum += x[0][static_cast<std::size_t>(r * s.cols + c)] * x[1][static_cast<std::size_t>(o * s.cols + c)];
      y.push_back(sum);
    }
  return y;
}

double inner(Size s) { return static_cast<double>(s.cols) + 1; }
double rows_or_outputs(Size s) { return static_cast<double>(std::max(s.rows, outputs)); }

TEST(Linear, WithBias) {
  check({.name = "linear with bias",
         .shapes =
             [](Size s) {
               return std::vector<Shape>{{s.rows, s.cols}, {outputs, s.cols}, {outputs}};
             },
         .op = [](Context&, const Tensors& x) { return linear(x[0], x[1], x[2]); },
         .reference = product,
         .terms = inner,
         .grad_terms = rows_or_outputs});
}

TEST(Linear, WithoutBiasOnThreeDims) {
  check({.name = "linear of [1, rows, cols]",
         .shapes =
             [](Size s) {
               return std::vector<Shape>{{1, s.rows, s.cols}, {outputs, s.cols}};
             },
         .op = [](Context&, const Tensors& x) { return linear(x[0], x[1]); },
         .reference = product,
         .terms = inner,
         .grad_terms = rows_or_outputs});
}

TEST(Linear, NoInputsLeaveTheBias) {
  Context context;
  const Tensor x = Tensor::zeros(context, {3, 0}, DType::f32), weight = Tensor::zeros(context, {2, 0}, DType::f32);
  const Tensor bias = Tensor::of(context, {2}, std::vector<float>{1, -2});
  EXPECT_EQ(linear(x, weight, bias).to_doubles(), (std::vector<double>{1, -2, 1, -2, 1, -2}));
}

TEST(Linear, AFrozenWeightKeepsNoActivationAlive) {
  Context context;
  Tensor x = Tensor::zeros(context, {3, 4}, DType::f32);
  make_leaf(x, Tensor::zeros(context, {3, 4}, DType::f32));
  const Tensor y = linear(x, Tensor::zeros(context, {2, 4}, DType::f32));
  EXPECT_FALSE(y.node()->saved[0]);
  EXPECT_TRUE(static_cast<bool>(y.node()->saved[1]));
}

TEST(Linear, RefusesWhatDoesNotFit) {
  Context context;
  const Tensor x = Tensor::zeros(context, {3, 4}, DType::f32), weight = Tensor::zeros(context, {2, 5}, DType::f32);
  EXPECT_THROW(linear(x, weight), Error);
  EXPECT_THROW(linear(x, Tensor::zeros(context, {2, 4}, DType::f64)), Error);
  EXPECT_THROW(linear(x, Tensor::zeros(context, {2, 4}, DType::f32), Tensor::zeros(context, {3}, DType::f32)), Error);
}

}  // namespace
}  // namespace chorus::testing
