// Operations of one training step, counted once for every program that computes the same step. A multiply-add is two. Matrix
// products only, and only those that the mathematics needs: nothing for recomputation, padding, rows without a label in the
// head, norms, activations, depthwise convolutions or the optimizer. Backward passes take twice the forward pass, so with N
// weights in products and T rows: 6 N T, plus 3 x 2 products of attention over the visible pairs (causal: half of them).
// (Counting the scores' product once more in the backward pass of attention, as some do, would add 1/6 of attention.)
#pragma once
#include <chorus/models/salm/config.h>

#include <span>

namespace chorus::bench {

/// 6 x (products' weights of a layer) x layers x rows + 6 x hidden x vocabulary x labelled rows + attention:
/// 12 x heads x head_dim x layers x sum over sequences of L (L + 1) / 2.
double decoder_flops(const LlmConfig& config, std::span<const std::int64_t> lengths, std::int64_t labelled);

/// Subsampling (products of its convolutions; of the first one no gradient of the input), its linear layer, and per block 6 x
/// weights x rows plus attention over all pairs: two products, three with relative positions, and these positions' projection
/// once for the longest sequence.
double encoder_flops(const ConformerConfig& config, std::span<const std::int64_t> frames);

}  // namespace chorus::bench
