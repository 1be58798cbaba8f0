#pragma once
#include <chorus/models/conformer/config.h>
#include <chorus/parallel/plan.h>

namespace chorus {

/// What of the configuration doesn't divide over so many tensor-parallel ranks; empty: nothing.
std::vector<WrongSize> wrong_heads(const ConformerConfig& config, int tp);

/// One block. Attention and feed-forward lie as a decoder's. The convolution module keeps its weights whole but for the
/// depthwise ones: its pointwise parts run on shards of the rows, and around the depthwise convolution rows are exchanged for
/// channels, so that all of its work is shared out and borders need no halo.
Plan conformer_layer_plan(const ConformerConfig& config, const Mesh& mesh, bool sequence_parallel);

/// The encoder: subsampling whole on every rank, then the blocks. Paths are those of `Conformer`.
Plan conformer_plan(const ConformerConfig& config, const Mesh& mesh, bool sequence_parallel);

}  // namespace chorus
