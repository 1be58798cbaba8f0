// A corpus made of tones, one pitch per character, and a SALM small enough to train on it in a blink.
#pragma once
#include <chorus/apps/run_folder.h>
#include <chorus/apps/trainer.h>
#include <chorus/io/audio.h>
#include <chorus/io/checkpoint.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <numbers>

namespace chorus::testing {

inline constexpr int tone_rate = 8000;

/// A folder that goes with the test.
struct Folder {
  std::filesystem::path path;
  explicit Folder(const std::string& name)
      : path(std::filesystem::temp_directory_path() / ("chorus_e2e_" + name + '.' + std::to_string(getpid()))) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  Folder(const Folder&) = delete;
};

/// Each character sounds for 0.16 s at a pitch of its own and fades in and out.
inline std::vector<float> sing(const std::string& text) {
  std::vector<float> samples;
  for (const char c : text) {
    const double pitch = 400.0 * std::pow(1.7, c - 'a');
    constexpr int length = tone_rate * 16 / 100;
    for (int i = 0; i < length; ++i) {
      const double at = static_cast<double>(i) / length;
      samples.push_back(
          static_cast<float>(0.5 * std::sin(std::numbers::pi * at) * std::sin(2 * std::numbers::pi * pitch * i / tone_rate)));
    }
  }
  return samples;
}

/// Writes sounds and `corpus.jsonl`.
inline std::filesystem::path write_corpus(const std::filesystem::path& folder) {
  const std::vector<std::string> texts{"ab", "bc", "cd", "da", "abc", "bcd", "cda", "dab", "acbd", "bdac", "cadb", "dbca"};
  std::vector<ManifestEntry> entries;
  for (const auto& text : texts) {
    const auto samples = sing(text);
    entries.push_back({.audio = folder / (text + ".wav"),
                       .text = text,
                       .offset = 0,
                       .duration = static_cast<double>(samples.size()) / tone_rate});
    write_wav(entries.back().audio, samples, tone_rate);
  }
  write_manifest(folder / "corpus.jsonl", entries);
  return folder / "corpus.jsonl";
}

inline constexpr std::string_view tiny_config = R"(
prompt = "{audio}{bos}{answer}{eos}"
max_answer_tokens_per_second = 10
[trainer]
threads = 1
gradient_clip_val = 1.0
[features]
sample_rate = 8000
window_seconds = 0.025
hop_seconds = 0.01
n_fft = 256
mels = 16
normalize = "global"
[tokenizer]
type = "char"
[batches]
global_batch_size = 6
speed_factors = [0.95, 1.0, 1.05]
concat_probability = 0.2
concat_seconds = 0.5
[spec_augment]
freq_masks = 1
freq_width = 2
time_mask_every = 20
time_width = 3
[model]
ctc_head = true
ctc_compressor = true
ctc_posteriors = true
projection_norm = true
[model.encoder]
d_model = 16
layers = 1
heads = 2
conv_kernel_size = 3
subsampling = "conv1d"
subsampling_factor = 4
self_attention_model = "rotary"
dropout = 0.05
[model.llm]
hidden_size = 16
num_hidden_layers = 1
num_attention_heads = 2
num_key_value_heads = 2
intermediate_size = 32
embedding_std = 0.5
dropout = 0.1
[[phases]]
name = "ctc"
steps = 14
llm_weight = 0
ctc_weight = 1
freeze_params = ["llm", "projection"]
schedule = {name = "cosine", lr = 5e-3, warmup_steps = 4}
[[phases]]
name = "joint"
steps = 16
llm_weight = 0.7
ctc_weight = 0.3
token_corruption = 0.2
label_smoothing = 0.1
keep = ["encoder", "ctc_head"]
schedule = {name = "cosine", lr = 5e-3, warmup_steps = 4}
)";

/// The configuration above with overrides, for a run in `output`.
inline RunConfig tiny(const std::filesystem::path& corpus, const std::filesystem::path& output,
                      std::vector<std::string> overrides = {}) {
  overrides.push_back("data.train=" + corpus.string());
  overrides.push_back("trainer.output_dir=" + output.string());
  return parse_config<RunConfig>(tiny_config, "tiny", overrides).value;
}

/// What a run said through its hooks.
struct Heard {
  StartReport started;
  std::vector<StepReport> steps;
  std::vector<std::string> messages;
  std::vector<Evaluation> evaluations;
  std::atomic<bool> stop{false};
  std::int64_t stop_at = -1;  ///< step after which to ask for the end

  TrainerHooks hooks() {
    TrainerHooks hooks;
    hooks.step = [this](const StepReport& report) {
      steps.push_back(report);
      if (report.step == stop_at) stop = true;
    };
    hooks.start = [this](const StartReport& report) { started = report; };
    hooks.message = [this](const std::string& text) { messages.push_back(text); };
    hooks.evaluation = [this](const EvaluationReport& report) { evaluations.push_back(report.evaluation); };
    hooks.stop = &stop;
    return hooks;
  }
  bool said(const std::string& text) const {
    for (const auto& message : messages)
      if (message.find(text) != message.npos) return true;
    return false;
  }
};

/// Bit by bit: two runs of the same steps.
inline void expect_same_steps(const std::vector<StepReport>& expected, const std::vector<StepReport>& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].step, actual[i].step);
    EXPECT_EQ(expected[i].loss, actual[i].loss)
        << "step " << expected[i].step << ", off by " << actual[i].loss - expected[i].loss;
    EXPECT_EQ(expected[i].grad_norm, actual[i].grad_norm) << "step " << expected[i].step;
  }
}

/// All tensors of the newest checkpoint, by name.
inline std::vector<std::pair<std::string, std::vector<double>>> newest_tensors(const RunConfig& config) {
  Context context;
  const auto checkpoint = find_checkpoint(config.trainer.output_dir / "checkpoints", [](const std::string&) {});
  require(checkpoint.has_value(), "test", "no checkpoint in ", config.trainer.output_dir.string());
  std::vector<std::pair<std::string, std::vector<double>>> out;
  for (const auto& tensor : checkpoint->manifest().tensors)
    out.push_back({tensor.path, checkpoint->read(context, tensor.path).to_doubles()});
  return out;
}

/// Changes tensor `path` in the newest checkpoint, and nothing else of it.
inline void change_newest(const RunConfig& config, const std::string& path, const std::function<void(Tensor&)>& change) {
  const auto folder = config.trainer.output_dir / "checkpoints";
  Context context;
  const auto checkpoint = find_checkpoint(folder, [](const std::string&) {});
  require(checkpoint.has_value(), "test", "no checkpoint in ", folder.string());
  std::vector<CheckpointEntry> entries;
  for (const auto& tensor : checkpoint->manifest().tensors) {
    entries.push_back({tensor.path, checkpoint->read(context, tensor.path)});
    if (tensor.path == path) change(entries.back().tensor);
  }
  const auto manifest = checkpoint->manifest();
  save_checkpoint(folder, manifest.step, entries, manifest.state, canonical_toml(config));
}

}  // namespace chorus::testing
