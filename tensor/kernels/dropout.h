#pragma once
#include <chorus/core/rng.h>
#include <chorus/tensor/tensor.h>

#include <cstdint>

namespace chorus::kernel {

/// y[r, c] = draw >= threshold ? x[r, c] * 65536 / (65536 - threshold) : 0, where the draw is number c % 8 of the block with
/// counter (sample id lo, hi, position, c / 8). x, y [rows, n]; ids i64 [sequences]; index i32 [rows, 2]. y may be x.
void dropout(Cpu, const Tensor& x, const Tensor& ids, const Tensor& index, std::uint32_t threshold, RandomKey key, Tensor& y);

}  // namespace chorus::kernel
