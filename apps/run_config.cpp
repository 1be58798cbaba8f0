#include <chorus/apps/run_config.h>
#include <chorus/core/error.h>
#include <chorus/io/shards.h>

#include <regex>

namespace chorus {

bool is_regular_expression(const std::string& pattern) {
  try {
    std::regex(pattern, std::regex::ECMAScript);
    return true;
  } catch (const std::regex_error&) {
    return false;
  }
}

void check_paths(const Loaded<RunConfig>& loaded) {
  namespace fs = std::filesystem;
  config::Problems problems;
  const auto check_at = [&](const config::Tree* given, const std::string& name, const fs::path& path, bool folder) {
    const auto wrong = [&](const std::string& what) {
      problems.add(given ? given->place : config::Place{}, name + " = \"" + path.string() + "\": " + what);
    };
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    for (fs::path above = path; folder && !above.empty(); above = above.parent_path()) {
      const fs::file_status there = fs::status(above, error);
      if (fs::exists(there) && !fs::is_directory(there))
        wrong((above == path ? "is" : above.string() + " is") +
              std::string(" a file, expected a folder or a path to make one"));
      if (fs::exists(there) || above == above.parent_path()) break;
    }
    if (folder || path.empty()) return;
    if (!fs::exists(status)) return wrong("there is no such file");
    if (fs::is_directory(status)) return wrong("is a folder, expected a file");
    if (!fs::is_regular_file(status)) wrong("is no regular file, which it must be as it is read more than once");
  };
  const auto check = [&](const char* table, const char* key, const fs::path& path, bool folder) {
    const config::Tree* given = &loaded.given;
    if (*table && given) given = given->find(table);
    if (given) given = given->find(key);
    check_at(given, *table ? std::string(table) + '.' + key : key, path, folder);
  };
  const RunConfig& c = loaded.value;
  check("trainer", "output_dir", c.trainer.output_dir, true);
  check("trainer", "activation_offload_folder", c.trainer.activation_offload_folder, true);
  check("trainer", "optimizer_offload_folder", c.trainer.optimizer_offload_folder, true);
  check("data", "train", c.data.train, false);
  check("data", "validation", c.data.validation, false);
  check("", "tokenizer_model", c.tokenizer_model, false);
  const config::Tree* data = loaded.given.find("data");
  const config::Tree* inputs = data ? data->find("input_cfg") : nullptr;
  for (std::size_t i = 0; i < c.data.input_cfg.size(); ++i) {
    const config::Tree* given = inputs && i < inputs->items.size() ? &inputs->items[i] : nullptr;
    const std::string name = "data.input_cfg[" + std::to_string(i) + "].";
    for (const auto& [key, pattern] : {std::pair{"manifest_filepath", c.data.input_cfg[i].manifest_filepath},
                                       std::pair{"tarred_audio_filepaths", c.data.input_cfg[i].tarred_audio_filepaths}}) {
      const config::Tree* value = given ? given->find(key) : nullptr;
      try {
        const auto paths = expand_braces(pattern);
        // Shards may be missing: that costs their samples.
        for (std::size_t k = 0; key[0] == 'm' && k < paths.size(); ++k) check_at(value, name + key, paths[k], false);
      } catch (const Error& error) {
        problems.add(value ? value->place : config::Place{}, name + key + ": " + without_place(error));
      }
    }
  }
  problems.raise();
}

template Loaded<RunConfig> load_config<RunConfig>(const std::filesystem::path&, std::span<const std::string>);
template Loaded<RunConfig> parse_config<RunConfig>(std::string_view, const std::string&, std::span<const std::string>);
template std::string resolved_toml<RunConfig>(const Loaded<RunConfig>&);
template std::string config_reference<RunConfig>();

std::vector<InputConfig> DataConfig::inputs() const {
  if (!input_cfg.empty()) return input_cfg;
  InputConfig one;
  one.manifest_filepath = train.string();
  return {one};
}

Mixing DataConfig::mixing() const {
  Mixing mixing{.weights = {}, .temperature = reweight_temperature};
  for (const InputConfig& input : inputs()) mixing.weights.push_back(input.weight.value_or(1));
  return mixing;
}

}  // namespace chorus
