// What lies in the folder of a run, beside its checkpoints: everything that transcription needs to use the model.
#pragma once
#include <chorus/apps/run_config.h>
#include <chorus/io/manifest.h>

namespace chorus {

/// What of a configuration decides what a run computes, as TOML: equal text, equal steps (on any layout of ranks).
std::string trajectory_toml(const RunConfig& config);

/// The text side and the sound side of a run, made once and then read back: resuming and transcribing see the same.
struct RunInputs {
  Tokenizer tokenizer;
  FeatureStatistics statistics;  ///< empty unless features.normalize is global
};

/// The bytes of the run's SentencePiece model: that of config.tokenizer_model, or one trained on the texts of `train`.
std::string make_tokenizer(const RunConfig& config, std::span<const ManifestEntry> train);

/// Loads `<folder>/tokenizer.model` and `statistics.json`, or makes them: the tokenizer by make_tokenizer, the statistics from
/// the sound of `train`.
RunInputs open_run_inputs(const std::filesystem::path& folder, const RunConfig& config, std::span<const ManifestEntry> train);
/// For an existing run; errors name the file that is missing.
RunInputs load_run_inputs(const std::filesystem::path& folder, const RunConfig& config);

/// The configuration of an existing run, `<folder>/config.toml`.
RunConfig load_run_config(const std::filesystem::path& folder);
/// Writes it on the first start. Later starts must agree in all that shapes the trajectory (everything but [trainer] keys
/// other than seed and precision); otherwise an error shows the lines that differ.
void claim_run_folder(const std::filesystem::path& folder, const RunConfig& config);

/// A configuration as TOML without origins: equal configurations give equal texts.
std::string canonical_toml(const RunConfig& config);

}  // namespace chorus
