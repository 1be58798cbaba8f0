// How many bytes of a rank's memory training should take: model state as ZeRO shares it out (Rajbhandari et al. 2020, "ZeRO:
// Memory Optimizations Toward Training Trillion Parameter Models", section 3), and what layers keep between forward and
// backward. Plain arithmetic from shapes; tests compare it with what is allocated.
#pragma once
#include <chorus/parallel/activation_checkpointing.h>
#include <chorus/parallel/sharded.h>

namespace chorus {

/// Bytes per parameter; or of all, times their number.
struct StateBytes {
  double values = 0, gradients = 0, optimizer = 0;
  double total() const { return values + gradients + optimizer; }
  friend bool operator==(const StateBytes&, const StateBytes&) = default;
};

/// What one parameter takes on a rank that has it alone: its value in `type`, its gradient in wide(type), a master of the wide
/// type where that is another one and there are `masters`, and `arrays` of that type beside it (AdamW 2, SGD 0 or 1; see
/// state_arrays).
StateBytes whole_state(DType type, int arrays, bool masters = true);

/// The mean share of it that each of d ranks keeps. ZeRO-1 shares out the optimizer's part, ZeRO-2 gradients too, ZeRO-3 values
/// too. Buffers of what is gathered and of gradients that aren't summed yet come on top.
StateBytes shared_state(const StateBytes& whole, Sharding sharding, int d);

/// How a layer's work is cut: among `tp` ranks, between the products by rows too (`sp`).
struct LayerCut {
  int tp = 1;
  bool sp = false;
};

/// One microbatch as a layer sees it.
struct LayerRows {
  std::int64_t rows = 0;
  std::int64_t longest = 0;  ///< rows of its longest sequence: relative positions reach so far
};

/// A decoder layer of models/llm: grouped query attention (its probabilities aren't kept), feed-forward with a gate.
struct DecoderLayerShape {
  std::int64_t features = 0, heads = 0, kv_heads = 0, head_dim = 0, inner = 0;
};

/// A layer of models/conformer.
struct ConformerLayerShape {
  std::int64_t features = 0, heads = 0, inner = 0;
  bool relative = true;     ///< positions: relative ones are projected in every layer
  bool batch_norm = false;  ///< in place of a layer norm after the depthwise convolution
};

/// Bytes that the first rank keeps of one layer from its forward to its backward pass, with values of `type`: counted from the
/// tensors that backward reads. What is made again (norms, gates, dropout) isn't kept, and a conformer layer's input is made
/// again from the norm before it. Matrices take whole `padded_rows`.
double kept_by_layer(const DecoderLayerShape& layer, LayerRows rows, DType type, Recompute mode, LayerCut cut = {});
double kept_by_layer(const ConformerLayerShape& layer, LayerRows rows, DType type, Recompute mode, LayerCut cut = {});

/// What the field quotes for a transformer layer (Korthikanti et al. 2022, "Reducing Activation Recomputation in Large
/// Transformer Models", table 2): feed-forward of 4 h without a gate, masks of one byte. For values of `value_bytes` b its
/// terms are s B h (4 b + 2 + 12 b / t) and a s^2 B (2 b + 1) / t for attention's probabilities, divided by t as a whole with
/// sp: 34 and 5 for the paper's 16 bits. `rows` is s B; `selective` leaves out the probabilities (as flash attention does),
/// `full` keeps b s B h.
double quoted_for_layer(std::int64_t features, std::int64_t heads, LayerRows rows, double value_bytes, Recompute mode,
                        LayerCut cut = {});

}  // namespace chorus
