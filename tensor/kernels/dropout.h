#pragma once
#include <chorus/core/rng.h>
#include <chorus/tensor/rows.h>

namespace chorus::kernel {

/// Which elements of an activation go: draw < threshold, where the draw of (r, c) is number c % 8 of the block with counter
/// (sample id lo, hi, position, c / 8). What stays is multiplied by 65536 / (65536 - threshold). The kernels' tensors [rows, n]
/// are the part of it that begins at `window`.
struct DropoutMask {
  Tensor ids, index;  ///< i64 [sequences], i32 [rows, 2]: a Rows' own
  std::uint32_t threshold = 0;
  RandomKey key;
  Window window;
};

/// x, y [rows, n]; y may be x.
void dropout(Cpu, const Tensor& x, const DropoutMask& mask, Tensor& y);
/// y = dropout(silu(x)), and its gradient from x and dy.
void silu_dropout(Cpu, const Tensor& x, const DropoutMask& mask, Tensor& y);
void silu_dropout_backward(Cpu, const Tensor& x, const Tensor& dy, const DropoutMask& mask, Tensor& dx);

}  // namespace chorus::kernel
