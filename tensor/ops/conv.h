// Convolutions over packed sequences: taps beyond a sequence's own borders read zero, whoever lies next to it.
#pragma once
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/rows.h>

namespace chorus {

/// Rows that a strided convolution makes of n rows: floor((n + 2 pad - kernel) / stride) + 1, none of none.
std::int64_t conv_length(std::int64_t n, int kernel, int stride, int pad);

/// y[t', o] = sum_{j, i} weight[o, j * C + i] x[t' * stride + j - pad, i] + bias[o]. x [T, C], weight [O, kernel * C].
/// `out` are the rows of the result: with_lengths(rows, conv_length of each).
Tensor conv1d(const Tensor& x, const Rows& rows, const Rows& out, const Tensor& weight, const Tensor& bias, int kernel,
              int stride, int pad);

/// y[t, c] = sum_j weight[j, c] x[t + j - pad, c] + bias[c], stride 1. x [T, C], weight [kernel, C]; bias may be empty.
Tensor depthwise_conv1d(const Tensor& x, const Rows& rows, const Tensor& weight, const Tensor& bias, int pad);

/// 3x3, stride 2, pad 1 in time and frequency. x [T, F * C] holds C channels for each of F bins; the result is
/// [T', F' * O], F' = conv_length(F). weight [O, 9 * C] with taps (time, frequency) outermost.
Tensor conv2d_subsample(const Tensor& x, const Rows& rows, const Rows& out, const Tensor& weight, const Tensor& bias, int bins);
/// The same per channel: weight [9, C].
Tensor depthwise_conv2d_subsample(const Tensor& x, const Rows& rows, const Rows& out, const Tensor& weight, const Tensor& bias,
                                  int bins);

}  // namespace chorus
