// Fills a config struct from a tree, collecting everything that does not fit.
#pragma once
#include <chorus/core/config/check.h>
#include <chorus/core/config/tree.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace chorus::config {

/// Takes what `fields` names; for telling structs from scalars.
struct AnyVisitor {
  template <class... Parts>
  void operator()(const Parts&...) const {}
};
template <class T>
concept Table = requires(T& t, AnyVisitor v) {
  t.fields(v);
};

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

/// "an integer", "an array of numbers" ...; what an error says was expected.
template <class T>
std::string type_text() {
  if constexpr (Table<T>)
    return "a table";
  else if constexpr (is_optional<T>)
    return type_text<typename T::value_type>();
  else if constexpr (is_vector<T>) {
    if constexpr (Table<typename T::value_type>)
      return "an array of tables";
    else
      return "an array, each element " + type_text<typename T::value_type>();
  } else if constexpr (std::same_as<T, bool>)
    return "true or false";
  else if constexpr (std::integral<T>)
    return "an integer";
  else if constexpr (std::floating_point<T>)
    return "a number";
  else
    return "a string";
}

/// What one load needs besides the tree.
struct ReadState {
  Problems problems;
  std::vector<std::string> known;                      ///< every key path that some struct names
  std::vector<std::pair<Place, std::string>> unknown;  ///< keys nobody took
  std::string file;                                    ///< blamed for keys that are missing
};
/// Reports the unknown keys, each with the nearest known one.
void report_unknown(ReadState& state);
/// "path = value: expected ..." with a hint where a word is close to `words`.
void report_value(ReadState& state, const Tree& tree, const std::string& path, const std::string& expected,
                  const std::vector<std::string>& words = {});

bool read_scalar(const Tree& tree, bool& out);
bool read_scalar(const Tree& tree, double& out);
bool read_scalar(const Tree& tree, std::string& out);
bool read_scalar(const Tree& tree, std::int64_t& out);

template <class T>
void read_table(const Tree* tree, const std::string& path, T& out, ReadState& state);

/// Whether `tree` fitted T. Missing keys inside keep what `out` held.
template <class T>
bool read_value(const Tree& tree, const std::string& path, T& out, ReadState& state) {
  if constexpr (is_optional<T>) {
    typename T::value_type value{};
    if (!read_value(tree, path, value, state)) return false;
    out = std::move(value);
    return true;
  } else if constexpr (Table<T>) {
    if (tree.kind == Kind::table) {
      read_table(&tree, path, out, state);
      return true;
    }
  } else if constexpr (is_vector<T>) {
    if (tree.kind == Kind::array) {
      const std::size_t defaults = out.size();
      if (!tree.partial) out.assign(tree.items.size(), typename T::value_type{});
      bool good = true;
      for (std::size_t i = 0; i < tree.items.size(); ++i) {
        const Tree& item = tree.items[i];
        const std::string item_path = path + '[' + std::to_string(i) + ']';
        if (item.kind == Kind::none) continue;
        if (tree.partial && i >= defaults) {
          state.problems.add(item.place, joined(item_path, ": the default of ", path, " has ", defaults,
                                                " elements, the first is ", path, "[0]"));
          good = false;
        } else if constexpr (std::same_as<typename T::value_type, bool>) {
          bool value = false;  // std::vector<bool> has no elements to refer to
          good = read_value(item, item_path, value, state) && good;
          out[i] = value;
        } else {
          good = read_value(item, item_path, out[i], state) && good;
        }
      }
      return good;
    }
  } else if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    std::int64_t value = 0;
    if (read_scalar(tree, value)) {
      if (std::in_range<T>(value)) {
        out = static_cast<T>(value);
        return true;
      }
      constexpr auto low = static_cast<long double>(std::numeric_limits<T>::min()),
                     high = static_cast<long double>(std::numeric_limits<T>::max());
      report_value(state, tree, path,
                   std::is_unsigned_v<T> ? "an integer from 0" : joined("an integer from ", low, " to ", high));
      return false;
    }
  } else if constexpr (std::floating_point<T>) {
    double value = 0;
    if (read_scalar(tree, value)) {
      out = static_cast<T>(value);
      return true;
    }
    if (tree.kind == Kind::real) {
      report_value(state, tree, path, "a finite number");
      return false;
    }
  } else if constexpr (std::same_as<T, std::filesystem::path>) {
    std::string value;
    if (read_scalar(tree, value)) {
      out = value;
      return true;
    }
  } else {
    if (read_scalar(tree, out)) return true;
  }
  report_value(state, tree, path, type_text<T>());
  return false;
}

/// Applies a check to a value, to the value in an optional, or to each element of an array, whichever the check is made for.
template <class T, class Check>
void apply_check(const Tree& tree, const std::string& path, const T& value, const Check& check, ReadState& state) {
  if constexpr (requires { check.ok(value); }) {
    if (check.ok(value)) return;
    if constexpr (std::same_as<Check, OneOf>)
      report_value(state, tree, path, check.expected, check.words);
    else
      report_value(state, tree, path, check.expected);
  } else if constexpr (is_optional<T>) {
    if (value) apply_check(tree, path, *value, check, state);
  } else if constexpr (is_vector<T>) {
    for (std::size_t i = 0; i < value.size(); ++i)
      apply_check(i < tree.items.size() && tree.items[i].kind != Kind::none ? tree.items[i] : tree,
                  path + '[' + std::to_string(i) + ']', value[i], check, state);
  } else {
    static_assert(std::same_as<Check, Required>, "this check is not made for the type of this key");
  }
}

/// The visitor of one table.
class Reader {
 public:
  Reader(const Tree* tree, std::string path, ReadState& state) : tree_(tree), path_(std::move(path)), state_(state) {}

  template <class T, class... Checks>
  void operator()(const char* key, T& member, std::string_view = {}, const Checks&... checks) {
    const std::string path = path_.empty() ? key : path_ + '.' + key;
    state_.known.push_back(path);
    taken_.push_back(key);
    const Tree* given = tree_ ? tree_->find(key) : nullptr;
    if (!given) {
      if constexpr ((std::same_as<Checks, Required> || ...)) {
        const Place place = tree_ && !path_.empty() ? tree_->place : Place{.file = state_.file};
        state_.problems.add(place, path + ": is missing and has no default: expected " + type_text<T>());
      } else if constexpr (Table<T>) {
        read_table(nullptr, path, member, state_);  // its required keys are missing too
      }
      return;
    }
    if (read_value(*given, path, member, state_)) (apply_check(*given, path, member, checks, state_), ...);
  }

  void finish() {
    if (!tree_) return;
    for (const auto& [key, value] : tree_->entries)
      if (std::ranges::find(taken_, key) == taken_.end())
        state_.unknown.emplace_back(value.key_place, path_.empty() ? key : path_ + '.' + key);
  }

 private:
  const Tree* tree_;
  std::string path_;
  ReadState& state_;
  std::vector<std::string_view> taken_;
};

/// Passed to `rules`: reports a violated rule at the key it concerns.
class RuleChecker {
 public:
  RuleChecker(const Tree* tree, std::string path, ReadState& state) : tree_(tree), path_(std::move(path)), state_(state) {}
  template <class... Parts>
  void operator()(bool ok, const char* key, const Parts&... message) {
    if (ok) return;
    const Tree* given = tree_ ? tree_->find(key) : nullptr;
    const Place table = tree_ && !path_.empty() ? tree_->place : Place{.file = state_.file};
    state_.problems.add(given ? given->place : table, joined(path_, path_.empty() ? "" : ".", key, ": ", message...));
  }

 private:
  const Tree* tree_;
  std::string path_;
  ReadState& state_;
};

template <class T>
void read_table(const Tree* tree, const std::string& path, T& out, ReadState& state) {
  const std::size_t before = state.problems.size();
  Reader reader(tree, path, state);
  out.fields(reader);
  reader.finish();
  if constexpr (requires(RuleChecker & c) { out.rules(c); }) {
    // Rules relate keys to each other; they only make sense once every key by itself is right.
    RuleChecker checker(tree, path, state);
    if (state.problems.size() == before) out.rules(checker);
  }
}

}  // namespace chorus::config
