#pragma once
#include <chorus/core/rng.h>
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/rows.h>

#include <optional>

namespace chorus {

/// Zeroes elements of x [rows, n] with probability p (in steps of 2^-16) and scales the rest by 1/(1-p). Element (row, c)
/// draws from counter (sample id lo, sample id hi, position in its sequence, c / 8): eight 16-bit draws per block. With a
/// `window` x is that part of a larger activation with these `rows`, and so is its mask of the whole's.
Tensor dropout(const Tensor& x, const Rows& rows, double p, RandomKey key, std::optional<Window> window = {});

/// dropout(silu(x)) in one pass, with the same mask; bf16 is rounded once.
Tensor silu_dropout(const Tensor& x, const Rows& rows, double p, RandomKey key, std::optional<Window> window = {});

}  // namespace chorus
