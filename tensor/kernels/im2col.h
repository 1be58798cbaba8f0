// Turning convolutions into matrix products: each output position gets one row with the inputs under its taps.
#pragma once
#include <chorus/tensor/rows.h>

namespace chorus::kernel {

struct Taps {
  int kernel, stride, pad;
};

/// cols[t', j * C + i] = x[t' * stride + j - pad, i] within each sequence, zero beyond its borders. Any element type.
/// x [T, C] with rows `in`; cols [T', kernel * C] with rows `out`. Only `offsets` and `index` of the rows are read.
void im2col(Cpu, const Tensor& x, const Rows& in, const Rows& out, Taps taps, Tensor& cols);
/// dx[t, i] = sum of what `im2col` copied from there: the terms are gathered in order of rising taps, so it is
/// deterministic. cols [T', kernel * C] of wide(dx's type); dx [T, C].
void col2im(Cpu, const Tensor& cols, const Rows& in, const Rows& out, Taps taps, Tensor& dx);

/// 3x3 taps, stride 2, pad 1 over (time, bins): cols[t' * F' + f', (3 a + b) * C + i] = x[2 t' + a - 1, (2 f' + b - 1) * C +
/// i].
void im2col_3x3(Cpu, const Tensor& x, const Rows& in, const Rows& out, std::int64_t bins, Tensor& cols);
void col2im_3x3(Cpu, const Tensor& cols, const Rows& in, const Rows& out, std::int64_t bins, Tensor& dx);

/// y[P, O] = cols[P, K] weight[O, K]^T + bias[O], all bf16, for K <= narrow_width: what a convolution of one channel needs. A
/// product made for large K spends its time around the sums: 3x3 taps to 256 outputs at 20000 positions take 2.3 ms here and
/// 7.7 ms there, one thread of an Emerald Rapids. (In f32 the general product is as fast.) Bias may be empty.
void narrow_product(Cpu, const Tensor& cols, const Tensor& weight, const Tensor& bias, Tensor& y);
inline constexpr std::int64_t narrow_width = 16;

}  // namespace chorus::kernel
