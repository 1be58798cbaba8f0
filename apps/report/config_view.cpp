#include <chorus/apps/report/config_view.h>
#include <chorus/apps/report/html.h>

#include <algorithm>
#include <map>

namespace chorus::report {
namespace {

/// "phases.schedule" inside the second [[phases]]: "phases[1].schedule".
std::string indexed(const std::string& path, const std::map<std::string, int>& arrays) {
  std::string best;
  for (const auto& [array, count] : arrays)
    if ((path == array || path.starts_with(array + '.')) && array.size() > best.size()) best = array;
  if (best.empty()) return path;
  return best + '[' + std::to_string(arrays.at(best) - 1) + ']' + path.substr(best.size());
}

/// "configs/demo.toml:7:1" is long to read in every line: "demo.toml:7".
std::string short_origin(const std::string& origin) {
  const std::size_t slash = origin.rfind('/'), colon = origin.rfind(':');
  const std::size_t begin = slash == origin.npos ? 0 : slash + 1;
  const bool with_column = colon != origin.npos && colon > begin && origin.rfind(':', colon - 1) != origin.npos &&
                           origin.find_first_not_of("0123456789", colon + 1) == origin.npos;
  return origin.substr(begin, with_column ? colon - begin : origin.npos);
}

std::string value_html(const Setting& setting) { return setting.value.empty() ? "<i>not set</i>" : escape(setting.value); }

/// One table for each table of the file.
std::string tables_of(const std::vector<Setting>& settings, bool given_only) {
  std::string out = "<div class=\"settings\">", table = "\n";
  bool open = false;
  for (const auto& setting : settings) {
    if (given_only && setting.origin == "default") continue;
    if (setting.table != table) {
      if (open) out += "</tbody></table>";
      open = true;
      table = setting.table;
      out += "<table><caption>" + (table.empty() ? std::string("top level") : escape(table)) + "</caption><tbody>";
    }
    out += "<tr><td><code>" + escape(setting.key) + "</code></td><td><code>" + value_html(setting) +
           "</code></td><td class=\"from\" title=\"" + escape(setting.origin) + "\">" + escape(short_origin(setting.origin)) +
           "</td></tr>";
  }
  return out + (open ? "</tbody></table>" : "") + "</div>";
}

}  // namespace

std::vector<Setting> read_settings(std::string_view toml) {
  std::vector<Setting> out;
  std::map<std::string, int> arrays;
  std::string table;
  while (!toml.empty()) {
    const std::size_t end = std::min(toml.find('\n'), toml.size());
    std::string_view line = toml.substr(0, end);
    toml.remove_prefix(std::min(end + 1, toml.size()));
    if (line.starts_with("[[")) {
      const std::string path(line.substr(2, line.find("]]") - 2));
      ++arrays[path];
      table = indexed(path, arrays);
    } else if (line.starts_with("[")) {
      table = indexed(std::string(line.substr(1, line.find(']') - 1)), arrays);
    } else if (!line.empty()) {
      std::string origin;
      if (const auto at = line.rfind("  # "); at != line.npos) {
        origin = line.substr(at + 4);
        line = line.substr(0, at);
      }
      constexpr std::string_view unset = " is not set";
      if (line.starts_with("# ") && line.ends_with(unset)) {
        line.remove_prefix(2);
        line.remove_suffix(unset.size());
        out.push_back({table, std::string(line), "", origin});
      } else if (const auto equals = line.find(" = "); equals != line.npos) {
        out.push_back({table, std::string(line.substr(0, equals)), std::string(line.substr(equals + 3)), origin});
      }
    }
  }
  return out;
}

std::string draw_settings(const std::vector<Setting>& settings) {
  const auto given = std::ranges::count_if(settings, [](const Setting& s) { return s.origin != "default"; });
  // Without a single default the file has no origins.
  if (given == std::ssize(settings)) return tables_of(settings, false);
  return (given > 0 ? tables_of(settings, true) : "") + "<details><summary>All " + std::to_string(settings.size()) +
         " settings, with their defaults</summary>" + tables_of(settings, false) + "</details>";
}

std::string draw_differences(const std::vector<std::vector<Setting>>& runs, const std::vector<std::string>& names) {
  std::vector<std::string> order;  // of first appearance
  std::map<std::string, std::vector<std::string>> values;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const auto& setting : runs[r]) {
      auto& row = values[setting.path()];
      if (row.empty()) {
        row.assign(runs.size(), "");
        order.push_back(setting.path());
      }
      row[r] = setting.value;
    }
  }
  std::erase_if(order, [&](const std::string& path) {
    const auto& row = values.at(path);
    return std::ranges::all_of(row, [&](const auto& value) { return value == row[0]; });
  });
  if (order.empty()) return "<p>All settings are equal.</p>";
  std::string out = "<div class=\"scroll\"><table class=\"full\"><thead><tr><th scope=\"col\">key</th>";
  for (const auto& name : names) out += "<th scope=\"col\">" + escape(name) + "</th>";
  out += "</tr></thead><tbody>";
  for (const auto& path : order) {
    out += "<tr><td><code>" + escape(path) + "</code></td>";
    for (const auto& value : values.at(path))
      out += "<td><code>" + (value.empty() ? "<i>not set</i>" : escape(value)) + "</code></td>";
    out += "</tr>";
  }
  return out + "</tbody></table></div>";
}

}  // namespace chorus::report
