#include <chorus/core/error.h>
#include <chorus/nn/path_patterns.h>

#include <algorithm>

namespace chorus {
namespace {
bool glob(std::string_view pattern, std::string_view path) {
  const auto star = pattern.find('*');
  if (star == pattern.npos) return pattern == path;
  if (!path.starts_with(pattern.substr(0, star))) return false;
  const auto rest = pattern.substr(star + 1);
  for (std::size_t at = star; at <= path.size(); ++at)
    if (glob(rest, path.substr(at))) return true;
  return false;
}

bool matches(const std::regex& pattern, const std::string& path) {
  return std::regex_search(path, pattern, std::regex_constants::match_continuous);
}
}  // namespace

bool path_matches(const std::string& pattern, const std::string& path) {
  std::string_view rest = pattern;
  while (true) {
    const auto bar = rest.find('|');
    if (glob(rest.substr(0, bar), path)) return true;
    if (bar == rest.npos) return false;
    rest.remove_prefix(bar + 1);
  }
}

std::string without_numbers(const std::string& path) {
  std::string out;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('.', at), path.size());
    const std::string part = path.substr(at, end - at);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    out += (at > 0 ? "." : "") + (number ? std::string("*") : part);
    at = end + 1;
  }
  return out;
}

std::string kinds_of_paths(std::span<const std::string> paths) {
  std::vector<std::string> kinds;
  for (const auto& path : paths) {
    const std::string kind = without_numbers(path);
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  }
  std::string text;
  for (const auto& kind : kinds) text += (text.empty() ? "" : ", ") + kind;
  return text;
}

PathPatterns::PathPatterns(const std::string& key, const std::vector<std::string>& patterns,
                           std::span<const std::string> paths) {
  for (const auto& text : patterns) {
    try {
      patterns_.emplace_back(text, std::regex::ECMAScript);
    } catch (const std::regex_error& error) {
      fail("parameters", key, ": '", text, "' is no regular expression: ", error.what());
    }
    const bool hit = std::any_of(paths.begin(), paths.end(), [&](const auto& path) { return matches(patterns_.back(), path); });
    require(hit, "parameters", key, ": '", text, "' matches none of the ", paths.size(), " parameters, e.g. not '",
            paths.empty() ? "" : paths.front(), "'");
  }
}

bool PathPatterns::match(const std::string& path) const {
  return std::any_of(patterns_.begin(), patterns_.end(), [&](const auto& pattern) { return matches(pattern, path); });
}

}  // namespace chorus
