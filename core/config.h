// Typed and strict configuration. A config is an aggregate with defaults that names its keys once:
//
//   struct Trainer {
//     double lr = 1e-3;
//     std::string schedule = "cosine";
//     template <class V> void fields(V&& v) {
//       v("lr", lr, "peak learning rate", greater_than(0.0));
//       v("schedule", schedule, "how it falls", one_of("constant", "cosine"));
//     }
//   };
//
// Members may be bool, integers, floating point, std::string, std::filesystem::path, structs with `fields` (tables),
// std::vector of all these (arrays, arrays of tables) and std::optional. `required_key` among the checks of a key says that it
// has no default. A struct may also have `template <class R> void rules(R&& rule) const` for what relates its keys:
//   rule(warmup <= steps, "warmup", "is ", warmup, ", more than steps = ", steps);
#pragma once
#include <chorus/core/config/print.h>
#include <chorus/core/config/read.h>

#include <span>

namespace chorus {

using config::ConfigError;

/// A configuration together with what was given for it, from which each value's origin is known.
template <config::Table T>
struct Loaded {
  T value;
  config::Tree given;
};

namespace config {
template <Table T>
Loaded<T> load(Tree tree, const std::string& file, std::span<const std::string> overrides, ReadState& state) {
  Loaded<T> loaded{T{}, std::move(tree)};
  apply_overrides(loaded.given, overrides, state.problems);
  state.file = file.empty() ? "no configuration file" : file;
  read_table(&loaded.given, "", loaded.value, state);
  report_unknown(state);
  state.problems.raise();
  return loaded;
}
}  // namespace config

/// Reads `file` (none if empty), then `overrides` such as `trainer.max_steps=20` or `phases[1].lr=1e-3`, in order; a whole
/// table or array replaces the file's. Throws one `ConfigError` that lists everything wrong: syntax, unknown keys with the nearest
/// known one, wrong types, values out of range, missing keys, each with file:line:column or "command line", the value given and
/// what was expected.
template <config::Table T>
Loaded<T> load_config(const std::filesystem::path& file, std::span<const std::string> overrides = {}) {
  config::ReadState state;
  config::Tree tree;
  tree.kind = config::Kind::table;
  if (!file.empty()) tree = config::parse_file(file, state.problems);
  state.problems.raise();  // without its syntax nothing else in a file means anything
  return config::load<T>(std::move(tree), file.string(), overrides, state);
}

/// The same for a text; `name` stands for the file in messages.
template <config::Table T>
Loaded<T> parse_config(std::string_view text, const std::string& name, std::span<const std::string> overrides = {}) {
  config::ReadState state;
  config::Tree tree = config::parse_toml(text, name, state.problems);
  state.problems.raise();
  return config::load<T>(std::move(tree), name, overrides, state);
}

/// The configuration as TOML, each value with a comment saying where it comes from. Loading it gives equal values.
template <config::Table T>
std::string resolved_toml(const Loaded<T>& loaded) {
  std::ostringstream out;
  T value = loaded.value;
  config::Printer(out, &loaded.given, "", false).print(value);
  return out.str();
}

/// All keys with their meaning, type, range and default, as a TOML file to start from.
template <config::Table T>
std::string config_reference() {
  std::ostringstream out;
  T value{};
  config::Printer(out, nullptr, "", true).print(value);
  return out.str();
}

}  // namespace chorus
