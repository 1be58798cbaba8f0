// What a configuration file and the command line say, before it is typed: a tree of values that remember where they came from.
#pragma once
#include <chorus/core/error.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorus::config {

/// Where a value was given.
struct Place {
  std::string file{};  ///< empty: not in a file
  int line = 0, column = 0;
  int argument = -1;  ///< position among the overrides; -1: not on the command line
  friend bool operator==(const Place&, const Place&) = default;
};
/// "train.toml:3:7", "command line" or "default".
std::string to_string(const Place& place);

enum class Kind { none, boolean, integer, real, string, array, table, other };

struct Tree {
  Kind kind = Kind::none;
  Place place;
  Place key_place;  ///< of the key in front of the value
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0;
  std::string text;                                   ///< of a string; of other kinds from the command line, as typed
  std::vector<Tree> items;                            ///< of an array
  bool partial = false;                               ///< an array of which the command line gave single elements only
  std::vector<std::pair<std::string, Tree>> entries;  ///< of a table

  const Tree* find(std::string_view key) const;
  Tree* find(std::string_view key);
};

/// The value as a short text for messages: `"ten"`, `3`, `[1, 2]`, `a table`.
std::string describe(const Tree& tree);

/// A configuration that can't be honoured: everything wrong with it, one line each.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// Everything wrong with a configuration, collected so that one error can tell all of it.
class Problems {
 public:
  void add(const Place& place, std::string text);
  bool empty() const { return found_.empty(); }
  std::size_t size() const { return found_.size(); }
  /// Throws `ConfigError` with one line per problem in the order of file and command line; does nothing without problems.
  void raise() const;

 private:
  std::vector<std::pair<Place, std::string>> found_;
};

/// Reads TOML. A syntax error becomes a problem (the parser stops at the first).
Tree parse_toml(std::string_view text, const std::string& name, Problems& problems);
Tree parse_file(const std::filesystem::path& file, Problems& problems);

/// Applies `a.b[1].c=value` texts in order, a later one over an earlier one of the same key. The value is TOML; a word that is
/// not TOML is a string. A key inside a value that is no table is a problem.
void apply_overrides(Tree& root, std::span<const std::string> overrides, Problems& problems);

}  // namespace chorus::config
