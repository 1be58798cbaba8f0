// Where a run is: all that a checkpoint must hold so that going on equals never having stopped.
#pragma once
#include <chorus/apps/run_folder.h>
#include <chorus/apps/salm_builder.h>
#include <chorus/apps/whole_tensors.h>

#include <nlohmann/json.hpp>
#include <string>

namespace chorus {

struct Progress {
  std::int64_t step = 0;           ///< finished optimizer steps, over all phases
  std::int64_t phase = 0;          ///< index of the running phase
  std::int64_t phase_step = 0;     ///< finished steps of it
  DataCursor cursor;               ///< of the next batch
  std::int64_t skipped_steps = 0;  ///< that changed nothing, as they weren't finite
  double train_seconds = 0;
  DropCounts drops;
  std::string train_digest;  ///< of the training manifest: the same cursor means other samples in another one
  std::string tokenizer_digest, statistics_digest;  ///< of what gives ids and features their meaning; empty: not known
};

nlohmann::json to_json(const Progress& progress);
/// Throws naming what is missing.
Progress progress_from_json(const nlohmann::json& json);

/// XXH3-128 of what gives token ids and features their meaning.
std::string tokenizer_digest(const RunInputs& inputs);
std::string statistics_digest(const RunInputs& inputs);
/// Other pieces or other features under the weights of a checkpoint would be wrong without any sign: an error that names the
/// file of the run's folder.
void require_same_inputs(const Progress& saved, const RunInputs& inputs, const std::filesystem::path& folder);

/// What a rank owns of a run's tensors, by their names in checkpoints: groups model, buffer and
/// optimizer/<kind>, then the parameter's path (`checkpoint_path`).
std::vector<NamedPart> named_tensors(const BuiltSalm& built, const Optimizer& optimizer);
/// The model's part of them.
std::vector<NamedPart> named_weights(const BuiltSalm& built);

/// "model/llm/norm/weight" -> "llm.norm.weight".
std::string parameter_path(std::string checkpoint_name);

/// XXH3-128 of all weights, in their order: on the first rank, empty on others. All ranks call it.
std::string weight_hash(const BuiltSalm& built, Group& world, const Mesh& mesh);

/// Copies parameters and buffers whose path matches one of `keep` (from its start) from the model of the phase
/// before. A pattern that matches nothing is an error. Returns how many parameters were kept. All ranks call it.
std::size_t keep_parameters(const BuiltSalm& before, BuiltSalm& now, const std::vector<std::string>& keep, const Mesh& mesh);

}  // namespace chorus
