// From configuration and samples to the model and its batches.
#pragma once
#include <chorus/apps/prompt.h>
#include <chorus/apps/run_config.h>
#include <chorus/models/salm/model.h>
#include <chorus/nn/materialize.h>
#include <chorus/parallel/mesh.h>

namespace chorus {

/// A model and its memory; stays where it was made, because the store points into the model.
struct BuiltSalm {
  Salm model;
  ParamStore store;
};

/// The model's configuration with the sizes that follow from the front end and the tokenizer.
SalmConfig sized_config(const RunConfig& config, const Tokenizer& tokenizer);
std::unique_ptr<BuiltSalm> build_salm(Context& context, const RunConfig& config, const Tokenizer& tokenizer,
                                      const FreezeRules& freeze);
/// For training: this rank's part of the model, by the model's plan (salm_plan), with activations checkpointed, and of it what
/// `config.parallel.sharding` lets it own; a folder for the optimizer's state is made. The mesh must outlive it. What can't lie
/// so is an error before any parameter has memory.
std::unique_ptr<BuiltSalm> build_salm(Context& context, const RunConfig& config, const Tokenizer& tokenizer,
                                      const FreezeRules& freeze, Mesh& mesh);

/// Has what is offloaded lie in the nearest folders that are there, whose file systems the configured ones will be on: for a
/// dry run, which makes none.
void use_folders_that_are_there(TrainerConfig& trainer);

/// Tells the model's units what `trainer.activation_*` says; a folder for what is offloaded is made. Training steps of a model
/// that wasn't told compute the same and take more memory.
void checkpoint_activations(Salm& model, const TrainerConfig& trainer);

/// One sample as the loader prepares it.
struct SpeechSample {
  std::int64_t id = 0;
  std::span<const float> features;     ///< [frames, mels], normalised
  std::span<const std::int32_t> text;  ///< tokens of the answer; empty when it is to be found
};

/// Packs samples into one microbatch. `train`: with answers and CTC labels; else only the question.
SalmBatch make_salm_batch(Context& context, std::span<const SpeechSample> samples, const RunConfig& config,
                          const Tokenizer& tokenizer, const Prompt& prompt, bool train);

/// A microbatch of the loader, for training.
SalmBatch make_salm_batch(Context& context, const Microbatch& microbatch, const RunConfig& config, const Tokenizer& tokenizer,
                          const Prompt& prompt);

/// A phase's `token_corruption`: any piece but the special ones may take a token's place.
TokenCorruption token_corruption(const PhaseConfig& phase, const Tokenizer& tokenizer);

/// What a sample adds to the normalisers of the global batch.
LossCounts loss_counts(std::int64_t frames, std::span<const std::int32_t> text, const RunConfig& config, const Prompt& prompt);

}  // namespace chorus
