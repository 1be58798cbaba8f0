// config.toml of a run, as it is shown and compared.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace chorus::report {

struct Setting {
  std::string table;  ///< "phases[1].schedule"; empty at the top
  std::string key;
  std::string value;   ///< as TOML; empty: not set
  std::string origin;  ///< "demo.toml:7:1", "command line", "default"
  std::string path() const { return table.empty() ? key : table + '.' + key; }
};

/// Reads what resolved_toml writes: one setting a line, its origin behind it.
std::vector<Setting> read_settings(std::string_view toml);

/// The settings that were given, and all of them behind a summary, as HTML.
std::string draw_settings(const std::vector<Setting>& settings);
/// A table of the keys whose values differ, one column for each run; `names` are those of the columns.
std::string draw_differences(const std::vector<std::vector<Setting>>& runs, const std::vector<std::string>& names);

}  // namespace chorus::report
