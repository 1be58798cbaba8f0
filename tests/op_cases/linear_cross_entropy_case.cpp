#include <chorus/tensor/ops/linear_cross_entropy.h>
#include <gmock/gmock.h>

#include <cmath>

#include "op_cases/op_case.h"

namespace chorus::testing {
namespace {

constexpr double some_scale = 0.125;

std::vector<std::int32_t> labels_of(std::int64_t rows, std::int64_t words, bool ignore_some) {
  std::vector<std::int32_t> labels;
  for (std::int64_t t = 0; t < rows; ++t)
    labels.push_back(ignore_some && t % 3 == 1 ? ignored_label : static_cast<std::int32_t>((7 * t + 2) % words));
  return labels;
}

std::vector<double> naive(const Values& x, Size s, std::int64_t words, const std::vector<std::int32_t>& labels,
                          double smoothing) {
  double total = 0;
  for (std::int64_t t = 0; t < s.rows; ++t) {
    if (labels[static_cast<std::size_t>(t)] == ignored_label) continue;
    std::vector<double> z(static_cast<std::size_t>(words));
    double sum = 0, mean = 0;
    for (std::int64_t v = 0; v < words; ++v) {
      double& logit = z[static_cast<std::size_t>(v)];
      for (std::int64_t c = 0; c < s.cols; ++c)
        logit += x[0][static_cast<std::size_t>(t * s.cols + c)] * x[1][static_cast<std::size_t>(v * s.cols + c)];
      sum += std::exp(logit);
      mean += logit / static_cast<double>(words);
    }
    const double chosen = z[static_cast<std::size_t>(labels[static_cast<std::size_t>(t)])];
    total += (1 - smoothing) * (std::log(sum) - chosen) + smoothing * (std::log(sum) - mean);
  }
  return {some_scale * total};
}

OpCase cross_entropy_case(std::int64_t words, bool ignore_some, double smoothing) {
  return {.name = "linear_cross_entropy of " + std::to_string(words) + " words, smoothing " + std::to_string(smoothing),
          .shapes =
              [=](Size s) {
                return std::vector<Shape>{{s.rows, s.cols}, {words, s.cols}};
              },
          .op =
              [=](Context& context, const Tensors& x) {
                const std::int64_t rows = x[0].size(0);
                return linear_cross_entropy(x[0], x[1], Tensor::of(context, {rows}, labels_of(rows, words, ignore_some)),
                                            {some_scale, smoothing});
              },
          .reference = [=](const Values& x,
                           Size s) { return naive(x, s, words, labels_of(s.rows, words, ignore_some), smoothing); },
          // Logits are sums over cols, and the loss is one over rows of them.
          .terms = [](Size s) { return static_cast<double>(s.cols * std::max<std::int64_t>(s.rows, 1)); },
          // dx is a sum over words, dweight one over rows, of factors that are sums over cols.
          .grad_terms =
              [=](Size s) {
                return static_cast<double>(std::max({s.rows, s.cols, words}));
              }};
}

TEST(LinearCrossEntropy, AllRowsLabelled) { check(cross_entropy_case(21, false, 0)); }
TEST(LinearCrossEntropy, SomeRowsIgnored) { check(cross_entropy_case(40, true, 0)); }
TEST(LinearCrossEntropy, Smoothed) { check(cross_entropy_case(21, true, 0.1)); }
TEST(LinearCrossEntropy, ManyWords) {
  auto op_case = cross_entropy_case(1030, true, 0.1);
  op_case.sizes = {{5, 8}};
  check(op_case);
}

/// Loss and gradients in f64 of labels on 1,300 rows: two blocks.
struct Losses {
  std::vector<double> loss, dx, dweight;
};
Losses run(const std::vector<std::int32_t>& labels, double cotangent = 1, DType dtype = DType::f64, bool deferred = false) {
  Context context;
  const std::int64_t rows = static_cast<std::int64_t>(labels.size());
  const auto tensor = [&](const Shape& shape, std::uint64_t stream) {
    Tensor t = Tensor::empty(context, shape, dtype);
    dispatch_floating(dtype, "test", [&]<class T>() {
      for (std::int64_t i = 0; i < t.numel(); ++i)
        t.as<T>()[i] = static_cast<T>(test_value(stream, static_cast<std::uint64_t>(i), 1));
    });
    make_leaf(t, Tensor::zeros(context, shape, wide(dtype)));
    return t;
  };
  const Tensor x = tensor({rows, 6}, 1), weight = tensor({19, 6}, 2);
  const Tensor loss = linear_cross_entropy(x, weight, Tensor::of(context, {rows}, labels), {some_scale, 0.1});
  DeferredGrads later;
  backward(loss, {.cotangent = Tensor::full(context, {}, wide(dtype), cotangent), .deferred = deferred ? &later : nullptr});
  if (deferred) {
    EXPECT_EQ(later.size(), 1u);
    EXPECT_FALSE(weight.node()->sink.written);
    later.run();
  }
  EXPECT_TRUE(weight.node()->sink.written);
  return {loss.to_doubles(), x.node()->sink.grad.to_doubles(), weight.node()->sink.grad.to_doubles()};
}

TEST(LinearCrossEntropy, BlocksOfRowsAddUp) {
  auto labels = labels_of(1300, 19, true), none = std::vector<std::int32_t>(1300, ignored_label), first = labels,
       second = labels;
  std::copy(none.begin() + 700, none.end(), first.begin() + 700);
  std::copy(none.begin(), none.begin() + 700, second.begin());
  const Losses whole = run(labels), a = run(first), b = run(second);
  const auto add = [](std::vector<double> u, const std::vector<double>& v) {
    for (std::size_t i = 0; i < u.size(); ++i) u[i] += v[i];
    return u;
  };
  expect_close("loss", whole.loss, add(a.loss, b.loss), 1e-13);
  expect_close("dx", whole.dx, add(a.dx, b.dx), 1e-13);
  expect_close("dweight", whole.dweight, add(a.dweight, b.dweight), 1e-13);
}

TEST(LinearCrossEntropy, BlocksOfAllRowsAtOnce) {
  const auto labels = labels_of(1300, 19, false);
  const Losses whole = run(labels);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Losses rounded = run(labels, 1, dtype);
    const double eps = dtype == DType::f32 ? 0x1p-24 : 0x1p-8;
    expect_close("loss", rounded.loss, whole.loss, 4 * eps);
    expect_close("dx", rounded.dx, whole.dx, 8 * eps);
    expect_close("dweight", rounded.dweight, whole.dweight, 8 * eps * std::sqrt(1300.0));
  }
}

TEST(LinearCrossEntropy, NoLabelsGiveZeros) {
  const Losses none = run(std::vector<std::int32_t>(4, ignored_label)), empty = run({});
  for (const Losses& r : {none, empty}) {
    EXPECT_EQ(r.loss, std::vector<double>{0});
    EXPECT_THAT(r.dx, ::testing::Each(0));
    EXPECT_THAT(r.dweight, ::testing::Each(0));
  }
}

TEST(LinearCrossEntropy, TheCotangentScales) {
  const auto labels = labels_of(50, 19, true);
  const Losses once = run(labels), thrice = run(labels, 3);
  for (std::size_t i = 0; i < once.dweight.size(); ++i) EXPECT_NEAR(thrice.dweight[i], 3 * once.dweight[i], 1e-13) << i;
  for (std::size_t i = 0; i < once.dx.size(); ++i) EXPECT_NEAR(thrice.dx[i], 3 * once.dx[i], 1e-13) << i;
}

TEST(LinearCrossEntropy, DeferralKeepsTheBits) {
  const auto labels = labels_of(50, 19, true);
  const Losses now = run(labels), later = run(labels, 1, DType::f64, true);
  EXPECT_EQ(now.dweight, later.dweight);
  EXPECT_EQ(now.dx, later.dx);
}

TEST(LinearCrossEntropy, LargeLogitsStayFinite) {
  Context context;
  const Tensor x = Tensor::full(context, {1, 1}, DType::f32, 1e4),
               weight = Tensor::of(context, {3, 1}, std::vector<float>{-1, 0, 1});
  const auto loss = [&](std::int32_t label) {
    return linear_cross_entropy(x, weight, Tensor::of(context, {1}, std::vector<std::int32_t>{label}), {}).item();
  };
  EXPECT_EQ(loss(0), 2e4);
  EXPECT_EQ(loss(2), 0);
}

TEST(LinearCrossEntropy, RefusesLabelsOutsideTheVocabulary) {
  EXPECT_THROW(run({0, 19}), Error);
  EXPECT_THROW(run({0, -1}), Error);
  EXPECT_NO_THROW(run({0, 18, ignored_label}));
}

}  // namespace
}  // namespace chorus::testing
