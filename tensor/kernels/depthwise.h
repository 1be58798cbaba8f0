// Depthwise convolutions, computed directly: one channel is one lane, so every tap is a multiply-add of whole rows.
#pragma once
#include <chorus/tensor/rows.h>

namespace chorus::kernel {

/// y[t, c] = bias[c] + sum_j weight[flip ? kernel - 1 - j : j, c] x[t + j - pad, c] within each sequence. weight [kernel, C];
/// bias may be empty. With `flip` and pad' = kernel - 1 - pad this is its own adjoint: dx from dy.
void depthwise_conv1d(Cpu, const Tensor& x, const Rows& rows, const Tensor& weight, const Tensor& bias, int pad, bool flip,
                      Tensor& y);
/// dw[j, c] (+)= sum_t dy[t, c] x[t + j - pad, c]; dw [kernel, C] of the wide type.
void depthwise_conv1d_weight(Cpu, const Tensor& x, const Tensor& dy, const Rows& rows, int pad, bool add, Tensor& dw);

/// 3x3, stride 2, pad 1 over (time, bins) per channel: x [T, F * C], weight [9, C], y [T', F' * C].
void depthwise_conv2d(Cpu, const Tensor& x, const Rows& in, const Rows& out, const Tensor& weight, const Tensor& bias,
                      std::int64_t bins, Tensor& y);
void depthwise_conv2d_input(Cpu, const Tensor& dy, const Rows& in, const Rows& out, const Tensor& weight, std::int64_t bins,
                            Tensor& dx);
void depthwise_conv2d_weight(Cpu, const Tensor& x, const Tensor& dy, const Rows& in, const Rows& out, std::int64_t bins,
                             bool add, Tensor& dw);

}  // namespace chorus::kernel
