// What chooses parameters, units and other parts of a module by their paths.
#pragma once
#include <regex>
#include <span>
#include <string>
#include <vector>

namespace chorus {

/// Alternatives separated by '|'; '*' stands for any characters, dots too.
bool path_matches(const std::string& pattern, const std::string& path);

/// "llm.layers.3.norm.weight" -> "llm.layers.*.norm.weight".
std::string without_numbers(const std::string& path);

/// For messages: each path without its numbers, once: "encoder.layers.*, llm.head".
std::string kinds_of_paths(std::span<const std::string> paths);

/// Regular expressions: ECMAScript patterns that match from the start of a path, like Python's re.match and so like NeMo's
/// keys.
class PathPatterns {
 public:
  PathPatterns() = default;
  /// Errors name `key` and the pattern: no regular expression, or one that matches none of `paths`.
  PathPatterns(const std::string& key, const std::vector<std::string>& patterns, std::span<const std::string> paths);
  bool match(const std::string& path) const;

 private:
  std::vector<std::regex> patterns_;
};

}  // namespace chorus
