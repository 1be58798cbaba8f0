// How much memory a training step takes, before any training: a step of the heaviest planned batch on made-up data, through a
// model of one or two layers of each kind.
#pragma once
#include <chorus/apps/salm_builder.h>

#include <array>
#include <span>

namespace chorus {

/// Bytes of tensors: the most of each category, and of all together (which may be less than their sum, as categories peak at
/// different moments).
struct MemoryUse {
  std::array<double, category_count> of{};
  double total = 0;
  friend MemoryUse operator+(MemoryUse a, const MemoryUse& b);
  /// The larger one, category by category.
  friend MemoryUse largest(MemoryUse a, const MemoryUse& b);
};

/// One sample of a microbatch, as far as memory can tell.
struct SampleShape {
  std::int64_t frames = 0, tokens = 0;
  friend bool operator==(const SampleShape&, const SampleShape&) = default;
};

/// Parameters and optimizer state of a phase, from the shapes alone: those of the first rank of a layout.
MemoryUse fixed_memory(const RunConfig& config, const PhaseConfig& phase, const Tokenizer& tokenizer, const MeshShape& layout);

/// Rows that a microbatch has in the encoder and in the decoder. Of a model with a CTC compressor the decoder is taken to read
/// one audio item per token of the text, which is about what a trained CTC head leaves.
struct RowCounts {
  std::int64_t encoder = 0, decoder = 0;
  std::int64_t longest_encoder = 0, longest_decoder = 0;  ///< of these in one sequence, at most
  /// The larger one, figure by figure.
  friend RowCounts largest(const RowCounts& a, const RowCounts& b);
};
RowCounts row_counts(const RunConfig& config, const Prompt& prompt, std::span<const SampleShape> samples);

/// What forward and backward of this microbatch take beside `fixed_memory`, gradients included. Layers of a kind are alike, so
/// at a given point of the step memory is an affine function of their number: models of more than two layers are measured with
/// one and with two of each kind (with two and with three where activations are checkpointed), and extrapolated.
/// Where `freeze_params` tells layers of a kind apart, the whole model is built instead. `accumulates`: the step has more than
/// one microbatch. Of a layout of several ranks it is the step of the first one, alone: what the others would send is zeros.
/// There an estimate may be off by a bucket of gradients (`parallel.ddp.bucket_size`) where buckets span layers.
MemoryUse step_memory(const RunConfig& config, const PhaseConfig& phase, const Tokenizer& tokenizer,
                      std::span<const SampleShape> samples, bool accumulates, const MeshShape& layout);

}  // namespace chorus
