#include <chorus/apps/salm_builder.h>
#include <chorus/core/posix_file.h>
#include <chorus/models/salm/plan.h>
#include <chorus/parallel/activation_checkpointing.h>
#include <chorus/tensor/autograd/activation_file.h>

namespace chorus {

SalmConfig sized_config(const RunConfig& config, const Tokenizer& tokenizer) {
  SalmConfig model = config.model;
  model.encoder.features = config.features.mels;
  model.llm.vocab_size = tokenizer.size();
  return model;
}

namespace {
std::unique_ptr<BuiltSalm> declared_salm(const RunConfig& config, const Tokenizer& tokenizer) {
  auto built = std::make_unique<BuiltSalm>();
  built->model = Salm(sized_config(config, tokenizer), tokenizer.size() + 1);
  return built;
}

void give_memory(BuiltSalm& built, Context& context, const RunConfig& config, const FreezeRules& freeze,
                 const std::optional<StoreShard>& share, const std::filesystem::path& offload_folder) {
  built.store = materialize(built.model, context,
                            {.dtype = dtype_of_precision(config.trainer.precision),
                             .seed = config.trainer.seed,
                             .freeze = freeze,
                             .shard = share,
                             .precision = precision_of(config.trainer, config.model),
                             .offload_folder = offload_folder});
}

/// Makes the folder of trainer.`key`; an error names the key if that or a file in it can't be made.
void make_offload_folder(const std::string& key, const std::filesystem::path& folder) {
  try {
    make_folders(folder);
    (void)PosixFile::temporary(folder, "attempt");
  } catch (const Error& error) {
    throw Error("trainer." + key + ": " + error.what());
  }
}
}  // namespace

void use_folders_that_are_there(TrainerConfig& trainer) {
  for (auto* folder : {&trainer.activation_offload_folder, &trainer.optimizer_offload_folder})
    if (!folder->empty()) *folder = existing_folder_around(*folder);
}

void checkpoint_activations(Salm& model, const TrainerConfig& trainer) {
  std::shared_ptr<ActivationFile> file;
  if (const auto& folder = trainer.activation_offload_folder; !folder.empty()) {
    make_offload_folder("activation_offload_folder", folder);
    file = std::make_shared<ActivationFile>(folder);
  }
  if (model.llm && !model.llm->layers.empty())
    checkpoint_activations(model, "llm.layers.*.unit", recompute_mode(trainer.activation_checkpointing_llm), file);
  if (model.encoder)
    checkpoint_activations(model, "encoder.subsampling.unit|encoder.layers.*.unit|adapter.*.unit",
                           recompute_mode(trainer.activation_checkpointing_perception), file);
}

std::unique_ptr<BuiltSalm> build_salm(Context& context, const RunConfig& config, const Tokenizer& tokenizer,
                                      const FreezeRules& freeze) {
  auto built = declared_salm(config, tokenizer);
  give_memory(*built, context, config, freeze, std::nullopt, {});
  return built;
}

std::unique_ptr<BuiltSalm> build_salm(Context& context, const RunConfig& config, const Tokenizer& tokenizer,
                                      const FreezeRules& freeze, Mesh& mesh) {
  auto built = declared_salm(config, tokenizer);
  checkpoint_activations(built->model, config.trainer);
  apply(salm_plan(built->model.config, mesh, config.parallel.sequence_parallel), built->model, mesh);
  if (!mesh.alone())
    check_salm_layouts(built->model, context, dtype_of_precision(config.trainer.precision),
                       precision_of(config.trainer, config.model));
  const auto& folder = config.trainer.optimizer_offload_folder;
  if (!folder.empty()) make_offload_folder("optimizer_offload_folder", folder);
  give_memory(*built, context, config, freeze, store_shard(sharding_of(config.parallel.sharding), mesh), folder);
  return built;
}

SalmBatch make_salm_batch(Context& context, std::span<const SpeechSample> samples, const RunConfig& config,
                          const Tokenizer& tokenizer, const Prompt& prompt, bool train) {
  const std::int64_t mels = config.features.mels;
  SalmBatch batch;
  batch.audio_tag = tokenizer.audio();
  std::vector<std::int64_t> lengths, ids;
  std::int64_t frames = 0;
  for (const auto& sample : samples) {
    const std::vector<std::int32_t> text(sample.text.begin(), sample.text.end());
    if (config.model.perception) {
      lengths.push_back(static_cast<std::int64_t>(sample.features.size()) / mels);
      ids.push_back(sample.id);
      frames += lengths.back();
      if (train) batch.transcripts.push_back(text);
    }
    batch.conversations.push_back(train ? prompt.train(sample.id, text) : prompt.ask(sample.id));
  }
  batch.frames = make_rows(context, lengths, ids);
  batch.features = Tensor::empty(context, {frames, mels}, dtype_of_precision(config.trainer.precision));
  dispatch_floating(batch.features.dtype(), "make_salm_batch", [&]<class T>() {
    T* to = batch.features.as<T>();
    for (const auto& sample : samples)
      to = std::transform(sample.features.begin(), sample.features.end(), to, [](float x) { return static_cast<T>(x); });
  });
  return batch;
}

SalmBatch make_salm_batch(Context& context, const Microbatch& microbatch, const RunConfig& config, const Tokenizer& tokenizer,
                          const Prompt& prompt) {
  std::vector<SpeechSample> samples;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < microbatch.ids.size(); ++i) {
    const auto values = static_cast<std::size_t>(microbatch.frames_of[i] * microbatch.mels);
    samples.push_back({microbatch.ids[i],
                       std::span<const float>(microbatch.features).subspan(static_cast<std::size_t>(at), values),
                       microbatch.tokens[i]});
    at += static_cast<std::int64_t>(values);
  }
  return make_salm_batch(context, samples, config, tokenizer, prompt, true);
}

LossCounts loss_counts(std::int64_t frames, std::span<const std::int32_t> text, const RunConfig& config, const Prompt& prompt) {
  const std::vector<std::int32_t> labels(text.begin(), text.end());
  return {.labels = static_cast<std::int64_t>(labels.size()) + prompt.trained_tokens(),
          .ctc_targets = feasible_ctc_targets(frames, labels, config.model.encoder.subsampling_factor)};
}

TokenCorruption token_corruption(const PhaseConfig& phase, const Tokenizer& tokenizer) {
  TokenCorruption out{.p = phase.token_corruption, .mask = -1, .pieces = {}};
  if (out.p == 0) return out;
  out.mask = tokenizer.mask();
  for (int id = out.mask + 1; id < tokenizer.size(); ++id) out.pieces.push_back(id);
  return out;
}

}  // namespace chorus
