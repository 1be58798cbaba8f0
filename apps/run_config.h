// One TOML file says everything about a run.
#pragma once
#include <chorus/apps/parallel_config.h>
#include <chorus/apps/precision_config.h>
#include <chorus/apps/prompt.h>
#include <chorus/core/config.h>
#include <chorus/io/inputs.h>
#include <chorus/io/loader.h>
#include <chorus/models/salm/config.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/nn/optim/schedule.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace chorus {

/// Whether std::regex takes the pattern.
bool is_regular_expression(const std::string& pattern);

struct DataConfig {
  std::filesystem::path train, validation;
  std::vector<InputConfig> input_cfg;
  double reweight_temperature = 1;
  double cache_gigabytes = 1;
  bool skip_bad_lines = true;
  template <class V>
  void fields(V&& v) {
    v("train", train, "manifest to train on; short for one input_cfg");
    v("input_cfg", input_cfg, "several manifests to train on, mixed by their weights");
    v("reweight_temperature", reweight_temperature, "T: weights w become w^T; 0: all inputs alike", between(0.0, 100.0));
    v("validation", validation, "manifest to evaluate on; empty: none");
    v("skip_bad_lines", skip_bad_lines,
      "true: manifest lines that can't be used are left out and counted; false: they are errors");
    v("cache_gigabytes", cache_gigabytes, "decoded sound that is kept in memory", between(0.0, 1e6));
  }
  template <class Check>
  void rules(Check&& check) const {
    check(!train.empty() || !input_cfg.empty(), "train", "is missing, and so is input_cfg: expected a manifest to train on");
    check(train.empty() || input_cfg.empty(), "train", "and input_cfg are both given: expected one of them");
    for (const InputConfig& input : input_cfg)
      check(input.weight.has_value() == input_cfg[0].weight.has_value(), "input_cfg", "'", input.manifest_filepath, "' has ",
            input.weight ? "a" : "no", " weight and '", input_cfg[0].manifest_filepath, "' has ",
            input_cfg[0].weight ? "one" : "none", ": expected weights for all or none");
  }
  /// What is trained on, as a list.
  std::vector<InputConfig> inputs() const;
  Mixing mixing() const;
};

/// A stretch of training with its own losses, schedule and choice of what trains.
struct PhaseConfig {
  std::string name = "train";
  std::int64_t steps = 1000;
  double llm_weight = 1, ctc_weight = 0, label_smoothing = 0, token_corruption = 0;
  std::vector<std::string> keep = {".*"};
  std::vector<std::string> freeze_params, prevent_freeze_params;
  ScheduleConfig schedule;
  std::optional<BatchConfig> batches;
  std::optional<SpecAugmentConfig> spec_augment;
  template <class V>
  void fields(V&& v) {
    v("name", name, "in logs", not_empty());
    v("steps", steps, "optimizer steps", between(1, 1'000'000'000'000));
    v("llm_weight", llm_weight, "factor of the mean cross-entropy of the text", at_least(0.0));
    v("ctc_weight", ctc_weight, "factor of the mean CTC loss", at_least(0.0));
    v("label_smoothing", label_smoothing, "of the cross-entropy", between(0.0, 0.99));
    v("token_corruption", token_corruption, "probability that an answer token is spoiled as input", between(0.0, 1.0));
    const auto regular = satisfies(is_regular_expression, "a regular expression");
    v("keep", keep, "regular expressions of parameters that go on from the phase before; others start afresh", regular);
    v("freeze_params", freeze_params, "regular expressions of parameters that are not trained", regular);
    v("prevent_freeze_params", prevent_freeze_params, "exceptions from freeze_params", regular);
    v("schedule", schedule, "learning rate");
    v("batches", batches, "replaces [batches] in this phase");
    v("spec_augment", spec_augment, "replaces [spec_augment] in this phase");
  }
  template <class Check>
  void rules(Check&& check) const {
    check(llm_weight > 0 || ctc_weight > 0, "llm_weight", "and ctc_weight are both 0: nothing to train");
    check(schedule.warmup_steps <= steps, "schedule", "warmup_steps ", schedule.warmup_steps, " is more than steps = ", steps);
    check(schedule.decay_steps == 0 || schedule.decay_steps <= steps - schedule.warmup_steps, "schedule", "decay_steps ",
          schedule.decay_steps, " is more than what warmup_steps = ", schedule.warmup_steps, " leave of steps = ", steps);
    check(token_corruption == 0 || llm_weight > 0, "token_corruption", token_corruption, " has no effect with llm_weight = 0");
    check(label_smoothing == 0 || llm_weight > 0, "label_smoothing", label_smoothing, " has no effect with llm_weight = 0");
    check(!batches || batches->sizes() == 1, "batches", batches ? batches->sizes_text() : "");
  }
};

/// Another run whose weights are this run's first values; see init_from.h.
struct InitFromConfig {
  std::filesystem::path run;
  std::vector<std::string> keep = {".*"};
  template <class V>
  void fields(V&& v) {
    v("run", run, "folder of the other run", required_key, not_empty());
    v("keep", keep, "regular expressions of parameters to take from it", not_empty());
  }
};

struct TrainerConfig {
  std::filesystem::path output_dir = "runs/run";
  std::uint64_t seed = 1;
  std::string precision = "fp32", lm_head_precision;
  bool allow_bf16_true = false;
  std::vector<UnitPrecisionConfig> mp_policy;
  int threads = 0;
  double gradient_clip_val = 1;
  std::int64_t skip_nonfinite_steps = 0;
  std::int64_t log_every_n_steps = 10, val_check_interval = 0, checkpoint_every_n_steps = 500;
  int keep_checkpoints = 2;
  std::int64_t stop_after_steps = 0;
  double memory_limit_gigabytes = 0;
  std::string activation_checkpointing_llm = "none", activation_checkpointing_perception = "none";
  std::filesystem::path activation_offload_folder, optimizer_offload_folder;
  bool trace = false;
  template <class V>
  void fields(V&& v) {
    v("output_dir", output_dir, "folder of the run: checkpoints, metrics, tokenizer; an existing run there is resumed",
      not_empty());
    v("seed", seed, "of initial values, data order and everything random");
    v("precision", precision,
      "bf16-mixed: values and activations in bf16, f32 masters; bf16-true: without masters; bf16-flash isn't there",
      one_of("fp32", "fp64", "bf16-mixed", "bf16-true", "bf16-flash"));
    v("allow_bf16_true", allow_bf16_true, "that updates too small for a bf16 weight are lost is known, and wanted");
    v("lm_head_precision", lm_head_precision,
      "of the decoder's head, or of the embedding if it is the head; empty: precision's",
      one_of("", "fp32", "float32", "bf16", "bfloat16"));
    v("mp_policy", mp_policy, "types of single units; for each type the first entry that matches and says it counts");
    v("threads", threads, "OpenMP threads of each rank; 0: the cores of the machine, shared among its ranks", between(0, 1024));
    v("gradient_clip_val", gradient_clip_val, "largest global norm of the gradient; 0: no clipping", at_least(0.0));
    v("skip_nonfinite_steps", skip_nonfinite_steps,
      "steps of the run that may have a gradient or loss that isn't finite: they change nothing but the place in the data; 0: "
      "the "
      "first ends the run",
      at_least(0));
    v("log_every_n_steps", log_every_n_steps, "lines in the log; metrics.jsonl has every step", at_least(1));
    v("val_check_interval", val_check_interval, "steps between evaluations; 0: only at the end", at_least(0));
    v("checkpoint_every_n_steps", checkpoint_every_n_steps, "0: only at the end", at_least(0));
    v("keep_checkpoints", keep_checkpoints, "newest ones that stay", at_least(2));
    v("stop_after_steps", stop_after_steps, "end this invocation after so many steps, with a checkpoint; 0: at the end",
      at_least(0));
    v("memory_limit_gigabytes", memory_limit_gigabytes, "of tensors; 0: the machine's", between(0.0, 1e6));
    const auto modes = one_of("none", "selective", "full");
    v("activation_checkpointing_llm", activation_checkpointing_llm,
      "what backward computes again of the decoder's layers, which keep only their input: full: all; selective: all but "
      "attention",
      modes);
    v("activation_checkpointing_perception", activation_checkpointing_perception,
      "the same of subsampling, encoder and adapter layers", modes);
    v("activation_offload_folder", activation_offload_folder,
      "where to keep, in files without a name, what checkpointed layers keep for backward; empty: in memory");
    v("optimizer_offload_folder", optimizer_offload_folder,
      "where to keep, in files without a name, optimizer state and the masters of bf16 values; empty: in memory");
    v("trace", trace, "write trace.json of the newest million operations at the end");
  }
  template <class Check>
  void rules(Check&& check) const {
    check(
        precision != "bf16-flash", "precision",
        "\"bf16-flash\", bf16 weights beside which the optimizer keeps the bits that they lack, isn't there; bf16-mixed keeps "
        "f32 masters");
    check(precision != "bf16-true" || allow_bf16_true, "precision",
          "\"bf16-true\" keeps weights in bf16 only: an update of less than 1/512 of a weight's size is rounded away, which is "
          "most of them at usual learning rates; bf16-mixed keeps f32 masters. If it is wanted all the same, set "
          "allow_bf16_true = true");
    check(precision == "bf16-true" || !allow_bf16_true, "allow_bf16_true", "is for precision = \"bf16-true\"; it is \"",
          precision, '"');
    check(precision != "fp64" || lm_head_precision.empty(), "lm_head_precision", lm_head_precision,
          " in a model of fp64, in which everything is fp64");
    check(precision != "fp64" || mp_policy.empty(), "mp_policy", "chooses between fp32 and bf16, but precision is \"fp64\"");
    check(activation_offload_folder.empty() || activation_checkpointing_llm != "none" ||
              activation_checkpointing_perception != "none",
          "activation_offload_folder",
          "has no effect while activation_checkpointing_llm and activation_checkpointing_perception "
          "are none");
  }
};

struct RunConfig {
  TrainerConfig trainer;
  DataConfig data;
  FeatureConfig features;
  TokenizerConfig tokenizer;
  std::filesystem::path tokenizer_model;
  BatchConfig batches;
  LoaderConfig loader;
  SpecAugmentConfig spec_augment;
  std::string prompt = "{bos}{audio}{answer}{eos}";
  SalmConfig model;
  std::vector<InitFromConfig> init_from;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  std::vector<PhaseConfig> phases = {PhaseConfig{}};
  double max_answer_tokens_per_second = 22;
  template <class V>
  void fields(V&& v) {
    v("prompt", prompt, "template of a sample: {audio}, {answer}, {bos}, {eos} and text", not_empty());
    v("tokenizer_model", tokenizer_model, "SentencePiece model to load; empty: one is trained on the training texts");
    v("max_answer_tokens_per_second", max_answer_tokens_per_second, "decoding stops there (plus 10)", greater_than(0.0));
    v("trainer", trainer, "the run");
    v("data", data, "where samples come from");
    v("features", features, "audio front end");
    v("tokenizer", tokenizer, "for training one");
    v("batches", batches, "what makes up a step");
    v("loader", loader, "how batches are prepared and cut");
    v("spec_augment", spec_augment, "masks on the features, in training");
    v("model", model, "SALM");
    v("init_from", init_from, "runs whose newest weights are this run's first values; later phases keep what their keep says");
    v("optimizer", optimizer, "update rule");
    v("parallel", parallel, "how the run is shared out over ranks (chorus train --ranks, mpirun)");
    v("phases", phases, "run one after another", not_empty());
  }
  template <class Check>
  void rules(Check&& check) const {
    const std::string wrong_prompt = prompt_problem(prompt, model.perception);
    check(wrong_prompt.empty(), "prompt", wrong_prompt);
    const bool all_own = std::ranges::all_of(phases, [](const PhaseConfig& phase) { return phase.batches.has_value(); });
    check(all_own || batches.sizes() == 1, "batches", batches.sizes_text());
    check(trainer.val_check_interval == 0 || !data.validation.empty(), "trainer", "val_check_interval is ",
          trainer.val_check_interval, ", but data.validation is empty");
    check(model.perception || features.normalize != "global", "features",
          "normalize is global, but model.perception is false: there is no sound to measure");
    check(model.decoder || trainer.activation_checkpointing_llm == "none", "trainer", "activation_checkpointing_llm is ",
          trainer.activation_checkpointing_llm, ", but model.decoder is false");
    check(model.decoder || trainer.lm_head_precision.empty(), "trainer", "lm_head_precision is ", trainer.lm_head_precision,
          ", but model.decoder is false");
    check(model.perception || trainer.activation_checkpointing_perception == "none", "trainer",
          "activation_checkpointing_perception is ", trainer.activation_checkpointing_perception,
          ", but model.perception is false");
    for (const auto& phase : phases) {
      check(model.perception || !(phase.batches ? *phase.batches : batches).needs_sound(), "phases", "'", phase.name,
            "' makes its batches by frames or seconds of sound, but model.perception is false");
      check(phase.ctc_weight == 0 || model.ctc_head, "phases", "'", phase.name,
            "' has a ctc_weight, but model.ctc_head is false");
      check(phase.llm_weight == 0 || model.decoder, "phases", "'", phase.name,
            "' has an llm_weight, but model.decoder is false");
    }
  }
  /// What its manifests are read for.
  Content content() const { return model.perception ? Content::speech : Content::text; }
  std::int64_t total_steps() const {
    std::int64_t n = 0;
    for (const auto& phase : phases) n += phase.steps;
    return n;
  }
};

/// Files and folders that the configuration names must be there and of the right kind. Throws one `ConfigError` with the place
/// of each key that is wrong; changes nothing.
void check_paths(const Loaded<RunConfig>& loaded);

// Reading and printing all these keys is much code: run_config.cpp has it once.
extern template Loaded<RunConfig> load_config<RunConfig>(const std::filesystem::path&, std::span<const std::string>);
extern template Loaded<RunConfig> parse_config<RunConfig>(std::string_view, const std::string&, std::span<const std::string>);
extern template std::string resolved_toml<RunConfig>(const Loaded<RunConfig>&);
extern template std::string config_reference<RunConfig>();

}  // namespace chorus
