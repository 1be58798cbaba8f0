#include <chorus/core/error.h>
#include <chorus/nn/path_patterns.h>

#include <algorithm>

namespace chorus {
namespace {
bool matches(const std::regex& pattern, const std::string& path) {
  return std::regex_search(path, pattern, std::regex_constants::match_continuous);
}
}  // namespace

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
