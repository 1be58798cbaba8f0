#include <chorus/tensor/ops/conv.h>
#include <gmock/gmock.h>

#include <cmath>

#include "op_cases/op_case.h"
#include "op_cases/packed.h"

namespace chorus::testing {
namespace {

using Lengths = std::vector<std::int64_t>;

Lengths convolved(Lengths lengths, int kernel, int stride, int pad) {
  for (auto& n : lengths) n = conv_length(n, kernel, stride, pad);
  return lengths;
}
std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

TEST(ConvLength, CountsWholeWindows) {
  EXPECT_EQ(conv_length(0, 3, 2, 1), 0);
  EXPECT_EQ(conv_length(1, 3, 2, 1), 1);
  EXPECT_EQ(conv_length(2, 3, 2, 1), 1);
  EXPECT_EQ(conv_length(3, 3, 2, 1), 2);
  EXPECT_EQ(conv_length(1000, 3, 2, 1), 500);
  EXPECT_EQ(conv_length(1001, 3, 2, 1), 501);
  EXPECT_EQ(conv_length(2, 3, 1, 0), 0);  // shorter than the window
  EXPECT_EQ(conv_length(1, 4, 2, 0), 0);
  EXPECT_EQ(conv_length(7, 7, 3, 0), 1);
  EXPECT_EQ(conv_length(9, 7, 3, 0), 1);
  EXPECT_EQ(conv_length(10, 7, 3, 0), 2);
  EXPECT_THROW(conv_length(5, 0, 1, 0), Error);
}

/// A convolution along time as the sum in its definition. channels in, outputs out; weight(o, j, i).
template <class Weight>
std::vector<double> by_definition(const std::vector<double>& x, const Lengths& lengths, int kernel, int stride, int pad,
                                  std::int64_t channels, std::int64_t outputs, const std::vector<double>* bias, Weight weight) {
  std::vector<double> y;
  const auto begins = begins_of(lengths);
  for (std::size_t s = 0; s < lengths.size(); ++s)
    for (std::int64_t t = 0; t < conv_length(lengths[s], kernel, stride, pad); ++t)
      for (std::int64_t o = 0; o < outputs; ++o) {
        double total = bias ? (*bias)[index(o)] : 0;
        for (std::int64_t j = 0; j < kernel; ++j) {
          const std::int64_t from = t * stride + j - pad;
          if (from < 0 || from >= lengths[s]) continue;
          for (std::int64_t i = 0; i < channels; ++i) total += weight(o, j, i) * x[index((begins[s] + from) * channels + i)];
        }
        y.push_back(total);
      }
  return y;
}

OpCase conv1d_case(int kernel, int stride, int pad, bool with_bias) {
  constexpr std::int64_t outputs = 6;
  const std::string name =
      "conv1d kernel " + std::to_string(kernel) + " stride " + std::to_string(stride) + " pad " + std::to_string(pad);
  return {.name = name,
          .shapes =
              [=](Size s) {
                std::vector<Shape> shapes{{s.rows, s.cols}, {outputs, kernel * s.cols}};
                if (with_bias) shapes.push_back({outputs});
                return shapes;
              },
          .op =
              [=](Context& context, const Tensors& x) {
                const auto lengths = awkward_lengths(x[0].size(0));
                const Rows rows = rows_of(context, lengths), out = with_lengths(rows, convolved(lengths, kernel, stride, pad));
                return conv1d(x[0], rows, out, x[1], with_bias ? x[2] : Tensor(), kernel, stride, pad);
              },
          .reference =
              [=](const Values& x, Size s) {
                return by_definition(x[0], awkward_lengths(s.rows), kernel, stride, pad, s.cols, outputs,
                                     with_bias ? &x[2] : nullptr,
                                     [&](auto o, auto j, auto i) { return x[1][index((o * kernel + j) * s.cols + i)]; });
              },
          .sizes = {{0, 17}, {1, 1}, {1, 3}, {7, 17}, {46, 3}, {65, 34}},
          .terms = [=](Size s) { return static_cast<double>(kernel * s.cols + 1); },
          .grad_terms = [=](Size s) { return static_cast<double>(std::max<std::int64_t>(s.rows, kernel * outputs)); }};
}

TEST(Conv1d, SubsamplesByTwo) { check(conv1d_case(3, 2, 1, true)); }
TEST(Conv1d, KeepsTheLength) { check(conv1d_case(5, 1, 2, false)); }
TEST(Conv1d, SkipsRows) { check(conv1d_case(2, 3, 0, true)); }
TEST(Conv1d, ReadsAheadOnly) { check(conv1d_case(4, 2, 3, true)); }

OpCase depthwise_case(int kernel, int pad, bool with_bias) {
  return {.name = "depthwise_conv1d kernel " + std::to_string(kernel) + " pad " + std::to_string(pad),
          .shapes =
              [=](Size s) {
                std::vector<Shape> shapes{{s.rows, s.cols}, {kernel, s.cols}};
                if (with_bias) shapes.push_back({s.cols});
                return shapes;
              },
          .op =
              [=](Context& context, const Tensors& x) {
                const Rows rows = rows_of(context, awkward_lengths(x[0].size(0)));
                return depthwise_conv1d(x[0], rows, x[1], with_bias ? x[2] : Tensor(), pad);
              },
          .reference =
              [=](const Values& x, Size s) {
                const auto lengths = awkward_lengths(s.rows);
                const auto begins = begins_of(lengths);
                std::vector<double> y;
                for (std::size_t q = 0; q < lengths.size(); ++q)
                  for (std::int64_t t = 0; t < lengths[q]; ++t)
                    for (std::int64_t c = 0; c < s.cols; ++c) {
                      double total = with_bias ? x[2][index(c)] : 0;
                      for (std::int64_t j = 0; j < kernel; ++j)
                        if (t + j - pad >= 0 && t + j - pad < lengths[q])
                          total += x[1][index(j * s.cols + c)] * x[0][index((begins[q] + t + j - pad) * s.cols + c)];
                      y.push_back(total);
                    }
                return y;
              },
          .sizes = {{0, 17}, {1, 1}, {1, 3}, {7, 17}, {46, 3}, {65, 34}, {300, 16}},
          .terms = [=](Size) { return kernel + 1.0; },
          .grad_terms = [=](Size s) { return static_cast<double>(std::max<std::int64_t>(s.rows, kernel)); }};
}

TEST(DepthwiseConv1d, OneTap) { check(depthwise_case(1, 0, true)); }
TEST(DepthwiseConv1d, NineTaps) { check(depthwise_case(9, 4, true)); }
TEST(DepthwiseConv1d, FifteenTapsWithoutBias) { check(depthwise_case(15, 7, false)); }
TEST(DepthwiseConv1d, ThirtyOneTaps) { check(depthwise_case(31, 15, true)); }
TEST(DepthwiseConv1d, Causal) { check(depthwise_case(5, 4, true)); }

/// Convolution of a plane: weight(o, a, b, i) of the inputs i that output channel o sees.
template <class Weight>
std::vector<double> plane_by_definition(const std::vector<double>& x, const Lengths& lengths, std::int64_t bins,
                                        std::int64_t channels, std::int64_t outputs, const std::vector<double>& bias,
                                        Weight weight) {
  std::vector<double> y;
  const auto begins = begins_of(lengths);
  for (std::size_t s = 0; s < lengths.size(); ++s)
    for (std::int64_t t = 0; t < conv_length(lengths[s], 3, 2, 1); ++t)
      for (std::int64_t f = 0; f < conv_length(bins, 3, 2, 1); ++f)
        for (std::int64_t o = 0; o < outputs; ++o) {
          double total = bias[index(o)];
          for (std::int64_t a = 0; a < 3; ++a)
            for (std::int64_t b = 0; b < 3; ++b) {
              const std::int64_t at = 2 * t + a - 1, bin = 2 * f + b - 1;
              if (at < 0 || at >= lengths[s] || bin < 0 || bin >= bins) continue;
              for (std::int64_t i = 0; i < channels; ++i)
                total += weight(o, a, b, i) * x[index(((begins[s] + at) * bins + bin) * channels + i)];
            }
          y.push_back(total);
        }
  return y;
}

OpCase plane_case(std::int64_t channels, std::int64_t outputs) {
  return {.name = "conv2d_subsample of " + std::to_string(channels) + " channels",
          .shapes =
              [=](Size s) {
                return std::vector<Shape>{{s.rows, s.cols * channels}, {outputs, 9 * channels}, {outputs}};
              },
          .op =
              [=](Context& context, const Tensors& x) {
                const auto lengths = awkward_lengths(x[0].size(0));
                const Rows rows = rows_of(context, lengths), out = with_lengths(rows, convolved(lengths, 3, 2, 1));
                return conv2d_subsample(x[0], rows, out, x[1], x[2], static_cast<int>(x[0].size(1) / channels));
              },
          .reference =
              [=](const Values& x, Size s) {
                return plane_by_definition(
                    x[0], awkward_lengths(s.rows), s.cols, channels, outputs, x[2],
                    [&](auto o, auto a, auto b, auto i) { return x[1][index((o * 9 + 3 * a + b) * channels + i)]; });
              },
          .sizes = {{0, 5}, {1, 1}, {1, 2}, {7, 5}, {46, 8}, {65, 17}},
          .threads_size = {517, 20},
          .terms = [=](Size) { return 9.0 * static_cast<double>(channels) + 1; },
          .grad_terms = [=](Size s) { return static_cast<double>(std::max<std::int64_t>(s.rows * s.cols, 9 * outputs)); }};
}

TEST(Conv2dSubsample, OneChannel) { check(plane_case(1, 5)); }
TEST(Conv2dSubsample, ThreeChannels) { check(plane_case(3, 4)); }

OpCase depthwise_plane_case(std::int64_t channels) {
  return {.name = "depthwise_conv2d_subsample of " + std::to_string(channels) + " channels",
          .shapes =
              [=](Size s) {
                return std::vector<Shape>{{s.rows, s.cols * channels}, {9, channels}, {channels}};
              },
          .op =
              [=](Context& context, const Tensors& x) {
                const auto lengths = awkward_lengths(x[0].size(0));
                const Rows rows = rows_of(context, lengths), out = with_lengths(rows, convolved(lengths, 3, 2, 1));
                return depthwise_conv2d_subsample(x[0], rows, out, x[1], x[2], static_cast<int>(x[0].size(1) / channels));
              },
          .reference =
              [=](const Values& x, Size s) {
                const auto lengths = awkward_lengths(s.rows);
                return plane_by_definition(
                    x[0], lengths, s.cols, channels, channels, x[2],
                    [&](auto o, auto a, auto b, auto i) { return o == i ? x[1][index((3 * a + b) * channels + i)] : 0.0; });
              },
          .sizes = {{0, 5}, {1, 1}, {1, 2}, {7, 5}, {46, 8}, {65, 17}},
          .threads_size = {517, 20},
          .terms = [](Size) { return 10.0; },
          .grad_terms = [](Size s) { return static_cast<double>(std::max<std::int64_t>(s.rows * s.cols, 9)); }};
}

TEST(DepthwiseConv2dSubsample, OneChannel) { check(depthwise_plane_case(1)); }
TEST(DepthwiseConv2dSubsample, NineteenChannels) { check(depthwise_plane_case(19)); }

/// Value and input gradient of each sequence, one vector for each. Sequence s has rows `first + ...` of an endless table.
template <class T, class Op>
std::vector<std::vector<double>> results(const Lengths& lengths, const Lengths& out_lengths, std::int64_t first,
                                         std::int64_t columns, const Op& op) {
  Context context;
  const auto begins = begins_of(lengths), out_begins = begins_of(out_lengths);
  std::vector<T> values;
  for (std::int64_t i = first * columns; i < (first + begins.back()) * columns; ++i)
    values.push_back(static_cast<T>(test_value(1, static_cast<std::uint64_t>(i), 1)));
  Tensor x = Tensor::of(context, {begins.back(), columns}, values);
  const Tensor dx = Tensor::zeros(context, x.shape(), wide(x.dtype()));
  make_leaf(x, dx);
  const Rows in = rows_of(context, lengths);
  const Tensor y = op(x, in, with_lengths(in, out_lengths));
  backward(y);
  const auto all_y = y.to_doubles(), all_dx = dx.to_doubles();
  std::vector<std::vector<double>> parts;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    parts.emplace_back(all_y.begin() + out_begins[s] * y.cols(), all_y.begin() + out_begins[s + 1] * y.cols());
    parts.back().insert(parts.back().end(), all_dx.begin() + begins[s] * columns, all_dx.begin() + begins[s + 1] * columns);
  }
  return parts;
}

template <class T, class Op>
void expect_independence(const std::string& what, const Lengths& out_lengths, std::int64_t columns, const Op& op) {
  const Lengths lengths = {7, 0, 1, 33, 2, 120, 3};
  const auto together = results<T>(lengths, out_lengths, 0, columns, op);
  const auto begins = begins_of(lengths);
  for (std::size_t s = 0; s < lengths.size(); ++s)
    EXPECT_EQ(results<T>({lengths[s]}, {out_lengths[s]}, begins[s], columns, op)[0], together[s]) << what << ", sequence " << s;
}

template <class T>
class Packed : public ::testing::Test {};
using Types = ::testing::Types<float, bf16, double>;
TYPED_TEST_SUITE(Packed, Types);

template <class T>
Tensor weights(const Tensor& x, const Shape& shape, std::uint64_t stream) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    values.push_back(static_cast<T>(test_value(stream, static_cast<std::uint64_t>(i), 1)));
  return Tensor::of(x.context(), shape, values);
}

TYPED_TEST(Packed, OneSequenceGivesTheSameAloneAndAmongOthers) {
  using T = TypeParam;
  const Lengths lengths = {7, 0, 1, 33, 2, 120, 3}, halves = convolved(lengths, 3, 2, 1);
  expect_independence<T>("depthwise_conv1d", lengths, 35, [](const Tensor& x, const Rows& rows, const Rows&) {
    return depthwise_conv1d(x, rows, weights<T>(x, {9, 35}, 2), weights<T>(x, {35}, 3), 4);
  });
  expect_independence<T>("depthwise_conv2d_subsample", halves, 5 * 19, [](const Tensor& x, const Rows& rows, const Rows& out) {
    return depthwise_conv2d_subsample(x, rows, out, weights<T>(x, {9, 19}, 2), weights<T>(x, {19}, 3), 5);
  });
  expect_independence<T>("conv1d", halves, 35, [](const Tensor& x, const Rows& rows, const Rows& out) {
    return conv1d(x, rows, out, weights<T>(x, {40, 3 * 35}, 2), weights<T>(x, {40}, 3), 3, 2, 1);
  });
  expect_independence<T>("conv2d_subsample", halves, 5, [](const Tensor& x, const Rows& rows, const Rows& out) {
    return conv2d_subsample(x, rows, out, weights<T>(x, {40, 9}, 2), weights<T>(x, {40}, 3), 5);
  });
}

TEST(Conv, RefusesWhatDoesNotFit) {
  Context context;
  const Rows rows = rows_of(context, {5, 2}), half = with_lengths(rows, convolved({5, 2}, 3, 2, 1));
  const Tensor x = Tensor::zeros(context, {7, 6}, DType::f32), w = Tensor::zeros(context, {4, 18}, DType::f32);
  const Tensor b = Tensor::zeros(context, {4}, DType::f32), taps = Tensor::zeros(context, {9, 3}, DType::f32);
  EXPECT_NO_THROW(conv1d(x, rows, half, w, b, 3, 2, 1));
  EXPECT_THROW(conv1d(x, rows, rows, w, b, 3, 2, 1), Error);
  EXPECT_THROW(conv1d(x, half, half, w, b, 3, 2, 1), Error);
  EXPECT_THROW(conv1d(x, rows, half, w, b, 2, 2, 1), Error);
  EXPECT_THROW(conv1d(x, rows, half, w, Tensor::zeros(context, {3}, DType::f32), 3, 2, 1), Error);
  EXPECT_THROW(conv1d(x, rows, half, Tensor::zeros(context, {4, 18}, DType::f64), b, 3, 2, 1), Error);
  EXPECT_THROW(depthwise_conv1d(x, rows, taps, {}, 4), Error);
  EXPECT_THROW(depthwise_conv1d(x, rows, Tensor::zeros(context, {3, 6}, DType::f32), {}, 3), Error);
  EXPECT_NO_THROW(depthwise_conv2d_subsample(x, rows, half, taps, {}, 2));
  EXPECT_THROW(depthwise_conv2d_subsample(x, rows, half, taps, {}, 3), Error);
  EXPECT_THROW(depthwise_conv2d_subsample(x, rows, half, taps, {}, 4), Error);
  EXPECT_THROW(depthwise_conv2d_subsample(x, rows, half, taps, {}, 0), Error);
}

TEST(Conv, SpansCountFlopsOnce) {
  Context context;
  context.trace.sum(true);
  const Rows rows = rows_of(context, {5, 2}), half = with_lengths(rows, convolved({5, 2}, 3, 2, 1));
  const Tensor x = Tensor::zeros(context, {7, 6}, DType::f32);
  conv1d(x, rows, half, Tensor::zeros(context, {4, 18}, DType::f32), {}, 3, 2, 1);
  depthwise_conv1d(x, rows, Tensor::zeros(context, {3, 6}, DType::f32), {}, 1);
  double all = 0;
  for (const auto& [name, total] : context.trace.totals()) all += total.flops;
  EXPECT_EQ(context.trace.totals().at("matmul nt").flops, 2.0 * 4 * 4 * 18);
  EXPECT_EQ(context.trace.totals().at("depthwise_conv1d").flops, 2.0 * 7 * 6 * 3);
  EXPECT_EQ(all, 2.0 * 4 * 4 * 18 + 2.0 * 7 * 6 * 3);
}

}  // namespace
}  // namespace chorus::testing
