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

}  // namespace chorus::kernel
