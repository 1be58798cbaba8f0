#include <chorus/apps/run_folder.h>
#include <chorus/core/posix_file.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

namespace chorus {
namespace {

FeatureStatistics read_statistics(const std::filesystem::path& file, int mels) {
  FeatureStatistics statistics;
  try {
    const auto json = nlohmann::json::parse(read_file(file));
    statistics = {json.at("mean").get<std::vector<double>>(), json.at("deviation").get<std::vector<double>>()};
  } catch (const nlohmann::json::exception& error) {
    fail("run folder", file.string(), " is damaged: ", error.what());
  }
  require(statistics.mean.size() == static_cast<std::size_t>(mels) && statistics.deviation.size() == statistics.mean.size(),
          "run folder", file.string(), " has ", statistics.mean.size(), " means and ", statistics.deviation.size(),
          " deviations; features.mels is ", mels);
  return statistics;
}

/// [trainer] as it matters for the trajectory.
RunConfig trajectory_part(RunConfig config) {
  TrainerConfig trainer;
  trainer.seed = config.trainer.seed;
  trainer.precision = config.trainer.precision;
  trainer.lm_head_precision = config.trainer.lm_head_precision;
  trainer.mp_policy = config.trainer.mp_policy;
  trainer.gradient_clip_val = config.trainer.gradient_clip_val;
  config.trainer = trainer;
  config.data.validation.clear();
  config.model.encoder_chunk_size_seconds = SalmConfig{}.encoder_chunk_size_seconds;  // changes no weights
  config.data.cache_gigabytes = DataConfig{}.cache_gigabytes;
  config.loader.prefetch = LoaderConfig{}.prefetch;
  config.loader.threads = LoaderConfig{}.threads;
  config.parallel = {};  // any layout computes the same
  return config;
}

/// What some phase may train on; 0: any length.
double longest_seconds(const RunConfig& config) {
  double longest = 0;
  for (const auto& phase : config.phases) {
    const double own = phase.batches.value_or(config.batches).max_seconds;
    if (own == 0) return 0;
    longest = std::max(longest, own);
  }
  return longest;
}

/// Lines of a canonical configuration by their key's whole name, e.g. "phases[0].steps = 4".
std::map<std::string, std::string> named_lines(const std::string& toml) {
  std::map<std::string, std::string> lines;
  std::map<std::string, int> counts;  // of the entries of arrays of tables
  std::istringstream text(toml);
  std::string table, array;  // `array` with its index, which tables within an entry have too
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("[[")) {
      array = line.substr(2, line.size() - 4);
      table = array + '[' + std::to_string(counts[array]++) + "].";
    } else if (line.starts_with('[')) {
      table = line.substr(1, line.size() - 2) + '.';
      if (!array.empty() && table.starts_with(array + '.'))
        table.insert(array.size(), '[' + std::to_string(counts[array] - 1) + ']');
    } else if (!line.empty()) {
      if (line.starts_with("# ")) line.erase(0, 2);  // "# batches is not set"
      lines[table + line.substr(0, line.find(' '))] = table + line;
    }
  }
  return lines;
}

std::string differing_keys(const std::string& before, const std::string& now) {
  const auto was = named_lines(before), is = named_lines(now);
  auto all = is;
  all.insert(was.begin(), was.end());
  std::string out;
  for (const auto& [key, line] : all) {
    const auto a = was.find(key), b = is.find(key);
    if (a != was.end() && b != is.end() && a->second == b->second) continue;
    if (a != was.end()) out += "\n  was: " + a->second;
    if (b != is.end()) out += "\n  now: " + b->second;
  }
  return out;
}

}  // namespace

std::string canonical_toml(const RunConfig& config) {
  config::Tree nothing;
  nothing.kind = config::Kind::table;
  // Every value carries its origin as a comment, which is "default" for all of them here.
  std::istringstream lines(resolved_toml(Loaded<RunConfig>{config, nothing}));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    if (const auto at = line.rfind("  # "); at != line.npos) line.erase(at);
    out += line + '\n';
  }
  return out;
}

std::string trajectory_toml(const RunConfig& config) { return canonical_toml(trajectory_part(config)); }

RunConfig load_run_config(const std::filesystem::path& folder) {
  require(std::filesystem::exists(folder / "config.toml"), "run folder", folder.string(),
          " has no config.toml: it is no run of `chorus train`");
  return load_config<RunConfig>(folder / "config.toml").value;
}

void claim_run_folder(const std::filesystem::path& folder, const RunConfig& config) {
  const auto file = folder / "config.toml";
  if (std::filesystem::exists(file)) {
    const RunConfig there = load_run_config(folder);
    const std::string before = trajectory_toml(there), now = trajectory_toml(config);
    require(before == now, "run folder", folder.string(),
            " holds a run with another configuration; choose another trainer.output_dir or remove it:",
            differing_keys(before, now));
    // A resumed run mustn't need room for what is there already.
    if (canonical_toml(there) == canonical_toml(config)) return;
  }
  make_folders(folder);
  write_file_atomically(file, canonical_toml(config));
}

RunInputs load_run_inputs(const std::filesystem::path& folder, const RunConfig& config) {
  require(std::filesystem::exists(folder / "tokenizer.model"), "run folder", folder.string(),
          " has lost its tokenizer.model, without which its checkpoints can't be used: put it back");
  FeatureStatistics statistics;
  if (config.features.normalize == "global") statistics = read_statistics(folder / "statistics.json", config.features.mels);
  return {Tokenizer::load(folder / "tokenizer.model"), std::move(statistics)};
}

std::string make_tokenizer(const RunConfig& config, std::span<const ManifestEntry> train) {
  if (!config.tokenizer_model.empty()) return Tokenizer::load(config.tokenizer_model).model();
  std::vector<std::string> texts;
  for (const auto& entry : train) texts.push_back(entry.text);
  return train_tokenizer(texts, config.tokenizer);
}

RunInputs open_run_inputs(const std::filesystem::path& folder, const RunConfig& config, std::span<const ManifestEntry> train) {
  if (!std::filesystem::exists(folder / "tokenizer.model")) {
    write_file_atomically(folder / "tokenizer.model", make_tokenizer(config, train));
  }
  if (config.features.normalize == "global" && !std::filesystem::exists(folder / "statistics.json")) {
    FeatureConfig raw = config.features;
    raw.normalize = "none";
    const FeatureStatistics statistics = measure_statistics(train, Frontend(raw), longest_seconds(config));
    write_file_atomically(folder / "statistics.json",
                          nlohmann::json{{"mean", statistics.mean}, {"deviation", statistics.deviation}}.dump());
  }
  return load_run_inputs(folder, config);
}

}  // namespace chorus
