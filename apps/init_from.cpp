#include <chorus/apps/init_from.h>
#include <chorus/apps/training_state.h>
#include <chorus/apps/whole_tensors.h>
#include <chorus/io/checkpoint.h>
#include <chorus/nn/path_patterns.h>

#include <algorithm>

namespace chorus {
namespace {

struct Target {
  std::string path, name;  ///< of the parameter, and of its tensor in checkpoints
  NamedPart part;
};

std::vector<Target> targets_of(const BuiltSalm& built) {
  std::vector<Target> targets;
  for (const auto& part : named_weights(built)) targets.push_back({parameter_path(part.name), part.name, part});
  return targets;
}

/// Whether a tensor has a row or a column for each piece of the vocabulary.
bool follows_vocabulary(const std::string& path, const SalmConfig& model) {
  return path.starts_with("llm.embedding.") || path.starts_with("llm.head.") || path.starts_with("ctc_head.") ||
         (model.ctc_posteriors && path.starts_with("projection."));
}

std::string front_end(const RunConfig& config) {
  RunConfig only;
  only.features = config.features;
  return canonical_toml(only);
}

void init_from_run(const InitFromConfig& source, const std::string& key, const RunConfig& config, const RunInputs& inputs,
                   const BuiltSalm& built, const std::function<void(const std::string&)>& report) {
  const RunConfig other = load_run_config(source.run);
  const auto checkpoint = find_checkpoint(source.run / "checkpoints", report);
  require(checkpoint.has_value(), "init_from", key, ".run: ", (source.run / "checkpoints").string(),
          " holds no intact checkpoint");
  const auto targets = targets_of(built);
  std::vector<std::string> paths, there;
  for (const auto& target : targets) {
    paths.push_back(target.path);
    if (checkpoint->contains(target.name)) there.push_back(target.path);
  }
  const PathPatterns patterns(key + ".keep", source.keep, paths);
  (void)PathPatterns(key + ".keep, among what " + source.run.string() + " has", source.keep, there);
  const bool same_pieces = Tokenizer::load(source.run / "tokenizer.model").model() == inputs.tokenizer.model();

  std::int64_t found = 0, values = 0;
  bool hears = false;
  std::string missing;
  for (const auto& [path, name, part] : targets) {
    if (!patterns.match(path)) continue;
    const SavedTensor* saved = checkpoint->manifest().find(name);
    if (!saved) {
      missing += (missing.empty() ? "" : ", ") + path;
      continue;
    }
    fill_part(part, [&](const Tensor& whole) {
      require(saved->shape == whole.shape(), "init_from", key, ": ", path, " has shape ", whole.shape(), " here and ",
              saved->shape, " in ", checkpoint->folder().string(), "; let ", key, ".keep leave it out");
      require(same_pieces || !follows_vocabulary(path, config.model), "init_from", key, ": the rows of ", path,
              " are pieces of another tokenizer than this run's; set tokenizer_model = \"",
              (source.run / "tokenizer.model").string(), "\", or let ", key, ".keep leave it out");
      checkpoint->read(name, whole, {.convert = true});
      values += whole.numel();
    });
    hears = hears || path.starts_with("encoder.");
    ++found;
  }
  std::string line = key + ": " + std::to_string(found) + " tensors, " + std::to_string(values) + " values from " +
                     checkpoint->folder().string();
  line += missing.empty() ? "; none is missing" : "; not there, so left at their first values: " + missing;
  if (hears && front_end(other) != front_end(config)) line += "; its [features] differ from this run's";
  report(line);
}

}  // namespace

void init_from_runs(const RunConfig& config, const RunInputs& inputs, const BuiltSalm& built,
                    const std::function<void(const std::string&)>& report) {
  for (std::size_t i = 0; i < config.init_from.size(); ++i)
    init_from_run(config.init_from[i], "init_from[" + std::to_string(i) + "]", config, inputs, built, report);
  built.store.masters_to_values();
}

}  // namespace chorus
