#include <chorus/core/config/print.h>
#include <chorus/core/config/tree.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>
#include <tuple>

namespace chorus::config {
namespace {

Place place_of(const toml::source_region& source, const Place& where) {
  Place place = where;
  if (where.argument < 0) {
    place.line = static_cast<int>(source.begin.line);
    place.column = static_cast<int>(source.begin.column);
  }
  return place;
}

// `where` holds the file or the argument; lines and columns are filled in for files.
Tree convert(const toml::node& node, const Place& where) {
  Tree tree;
  tree.place = tree.key_place = place_of(node.source(), where);
  if (const auto* table = node.as_table()) {
    tree.kind = Kind::table;
    for (const auto& [key, value] : *table) {
      tree.entries.emplace_back(std::string(key.str()), convert(value, where));
      tree.entries.back().second.key_place = place_of(key.source(), where);
    }
    const auto position = [](const auto& entry) {
      return std::pair(entry.second.key_place.line, entry.second.key_place.column);
    };
    std::ranges::stable_sort(tree.entries, {}, position);
  } else if (const auto* array = node.as_array()) {
    tree.kind = Kind::array;
    for (const auto& item : *array) tree.items.push_back(convert(item, where));
  } else if (const auto* boolean = node.as_boolean()) {
    tree.kind = Kind::boolean;
    tree.boolean = boolean->get();
  } else if (const auto* integer = node.as_integer()) {
    tree.kind = Kind::integer;
    tree.integer = integer->get();
  } else if (const auto* real = node.as_floating_point()) {
    tree.kind = Kind::real;
    tree.real = real->get();
  } else if (const auto* text = node.as_string()) {
    tree.kind = Kind::string;
    tree.text = text->get();
  } else {
    tree.kind = Kind::other;
  }
  return tree;
}

/// The parser, and all that walks a tree, recurse as deep as values nest, and stacks are finite.
constexpr int deepest = 32;

/// The line on which brackets, or the parts of one key, nest deeper than that; 0 where none does. Strings and comments don't
/// count; where quotes don't match, the parser stops before what this misses.
int too_deep(std::string_view text) {
  int line = 1, brackets = 0, parts = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '#') {
      while (i + 1 < text.size() && text[i + 1] != '\n') ++i;
    } else if (c == '"' || c == '\'') {
      const bool long_one = text.substr(i).starts_with(std::string(3, c));
      const std::string_view end = text.substr(i, long_one ? 3 : 1);
      for (i += end.size(); i < text.size() && !text.substr(i).starts_with(end) && (long_one || text[i] != '\n'); ++i) {
        if (text[i] == '\n') ++line;
        if (c == '"' && text[i] == '\\') ++i;
      }
      if (i < text.size() && text[i] == '\n')
        --i;  // an unfinished string: the line ends all the same
      else
        i += end.size() - 1;
    } else if (c == '.') {
      ++parts;
    } else if (c == '[' || c == '{' || c == ']' || c == '}') {
      brackets = std::max(0, brackets + (c == '[' || c == '{' ? 1 : -1));
      parts = 0;
    } else if (c == '=' || c == ',' || c == '\n') {
      parts = 0;
    }
    if (brackets > deepest || parts > deepest) return line;
  }
  return 0;
}

struct Step {
  std::string key;
  std::optional<std::size_t> index;
};

// "a.b[1].c" as steps; nothing where it is malformed.
std::optional<std::vector<Step>> split_path(std::string_view path) {
  std::vector<Step> steps;
  while (true) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    if (end == 0 || steps.size() > static_cast<std::size_t>(deepest)) return std::nullopt;
    steps.push_back({std::string(path.substr(0, end)), {}});
    path.remove_prefix(end);
    while (path.starts_with('[') && steps.size() <= static_cast<std::size_t>(deepest)) {
      std::size_t index = 0;
      const auto [rest, error] = std::from_chars(path.data() + 1, path.data() + path.size(), index);
      if (error != std::errc() || rest == path.data() + path.size() || *rest != ']') return std::nullopt;
      steps.push_back({"", index});
      path.remove_prefix(static_cast<std::size_t>(rest + 1 - path.data()));
    }
    if (path.empty()) return steps;
    if (!path.starts_with('.')) return std::nullopt;
    path.remove_prefix(1);
  }
}

/// Whether a text can be written as TOML and read again: it can't where it is no UTF-8.
bool is_toml_text(const std::string& text) {
  try {
    return toml::parse("value = " + toml_text(text)).size() == 1;
  } catch (const toml::parse_error&) {
    return false;
  }
}

// Nothing, with a problem, where the text starts like a string, an array or a table and is none: that is no plain word.
std::optional<Tree> parse_value(const std::string& text, const Place& where, Problems& problems, const std::string& shown) {
  Tree word;
  word.kind = Kind::string;
  word.place = word.key_place = where;
  word.text = text;
  if (too_deep(text)) {
    problems.add(where, shown + ": nests deeper than " + std::to_string(deepest) + " levels");
    return std::nullopt;
  }
  try {
    const auto table = toml::parse("value = " + text);
    if (table.size() != 1) return word;
    Tree tree = convert(*table.get("value"), where);
    if (tree.kind == Kind::other) return word;
    if (tree.kind != Kind::string) tree.text = text;
    return tree;
  } catch (const toml::parse_error& e) {
    if (text.empty() || std::string_view("\"'[{").find(text[0]) == std::string_view::npos) {
      if (is_toml_text(text)) return word;
      problems.add(where, shown + ": expected text in UTF-8");
      return std::nullopt;
    }
    std::string hint;
    if (text[0] == '{') hint = "; a text that starts with { needs quotes of its own, as in 'prompt=\"{audio}{answer}\"'";
    problems.add(where, shown + ": " + std::string(e.description()) + hint);
    return std::nullopt;
  }
}

// The place in the tree that the steps name; made where absent. Null, with a problem, for an element beyond a file's array and
// for a key inside a value that has none.
Tree* reach(Tree& root, const std::vector<Step>& steps, const Place& where, Problems& problems, const std::string& shown) {
  Tree* at = &root;
  std::string path;
  for (const auto& step : steps) {
    const Kind wanted = step.index ? Kind::array : Kind::table;
    if (at->kind != wanted && at->kind != Kind::none) {
      problems.add(where, shown + ": " + path + " = " + describe(*at) + ", given at " + to_string(at->place) + ", is no " +
                              (step.index ? "array" : "table"));
      return nullptr;
    }
    if (at->kind != wanted) {
      *at = Tree{};
      at->kind = wanted;
      at->place = at->key_place = where;
      at->partial = step.index.has_value();
    }
    if (!step.index) {
      path += (path.empty() ? "" : ".") + step.key;
      Tree* next = at->find(step.key);
      if (!next) {
        next = &at->entries.emplace_back(step.key, Tree{}).second;
        next->place = next->key_place = where;
      }
      at = next;
      continue;
    }
    if (*step.index >= at->items.size()) {
      // Without an array in the file the element is one of the default's, whose number only the typed reader knows.
      if (!at->partial || *step.index > 10'000) {
        problems.add(where, shown + ": " + path + " has " + std::to_string(at->items.size()) + " elements, given at " +
                                to_string(at->place) + "; the first is " + path + "[0]");
        return nullptr;
      }
      at->items.resize(*step.index + 1);
    }
    at = &at->items[*step.index];
    path += '[' + std::to_string(*step.index) + ']';
  }
  return at;
}

}  // namespace

std::string to_string(const Place& place) {
  if (place.argument >= 0) return "command line";
  if (place.file.empty()) return "default";
  if (place.line == 0) return place.file;
  return place.file + ':' + std::to_string(place.line) + ':' + std::to_string(place.column);
}

const Tree* Tree::find(std::string_view key) const {
  for (const auto& [name, value] : entries)
    if (name == key) return &value;
  return nullptr;
}
Tree* Tree::find(std::string_view key) { return const_cast<Tree*>(std::as_const(*this).find(key)); }

std::string describe(const Tree& tree) {
  std::ostringstream out;
  switch (tree.kind) {
    case Kind::none: return "nothing";
    case Kind::boolean: return tree.boolean ? "true" : "false";
    case Kind::integer: return std::to_string(tree.integer);
    case Kind::real: out << tree.real; return out.str();
    case Kind::string: return '"' + tree.text + '"';
    case Kind::table: return "a table";
    case Kind::other: return "a date or time";
    case Kind::array: break;
  }
  constexpr std::size_t shown = 8;
  for (std::size_t i = 0; i < std::min(shown, tree.items.size()); ++i) out << (i ? ", " : "[") << describe(tree.items[i]);
  out << (tree.items.empty() ? "[]" : tree.items.size() > shown ? ", ...]" : "]");
  return out.str();
}

void Problems::add(const Place& place, std::string text) { found_.emplace_back(place, std::move(text)); }

void Problems::raise() const {
  if (empty()) return;
  auto sorted = found_;
  std::ranges::stable_sort(sorted, {},
                           [](const auto& p) { return std::tuple(p.first.argument, p.first.line, p.first.column); });
  std::ostringstream text;
  text << "configuration: " << size() << (size() == 1 ? " error" : " errors");
  for (const auto& [place, what] : sorted) text << "\n  " << to_string(place) << ": " << what;
  throw ConfigError(text.str());  // not fail(): the place that matters is in the file, not in this source
}

Tree parse_toml(std::string_view text, const std::string& name, Problems& problems) {
  const Place where{.file = name};
  Tree nothing;
  nothing.kind = Kind::table;
  nothing.place = where;
  if (const int line = too_deep(text)) {
    problems.add({.file = name, .line = line, .column = 1}, "nests deeper than " + std::to_string(deepest) + " levels");
    return nothing;
  }
  try {
    return convert(toml::parse(text), where);
  } catch (const toml::parse_error& e) {
    problems.add(place_of(e.source(), where), std::string(e.description()));
    return nothing;
  }
}

Tree parse_file(const std::filesystem::path& file, Problems& problems) {
  // A folder opens like a file, but reading it throws an error that doesn't name it.
  if (std::filesystem::is_directory(file)) {
    problems.add({.file = file.string()}, "cannot be read: it is a folder, expected a TOML file");
    return {};
  }
  std::ifstream in(file, std::ios::binary);
  const std::string reason = in.is_open() ? "reading failed" : std::generic_category().message(errno);
  const std::string text = in.is_open() ? std::string(std::istreambuf_iterator<char>(in), {}) : std::string();
  if (!in.is_open() || in.bad()) {
    problems.add({.file = file.string()}, "cannot be read: " + reason);
    return {};
  }
  return parse_toml(text, file.string(), problems);
}

void apply_overrides(Tree& root, std::span<const std::string> overrides, Problems& problems) {
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    const std::string& text = overrides[i];
    const Place where{.argument = static_cast<int>(i)};
    const std::string shown = '`' + text + '`';
    const std::size_t equals = text.find('=');
    const auto steps = equals == text.npos ? std::nullopt : split_path(std::string_view(text).substr(0, equals));
    if (!steps) {
      problems.add(where, shown + ": expected key=value with a key like trainer.max_steps or phases[1].lr");
      continue;
    }
    auto value = parse_value(text.substr(equals + 1), where, problems, shown);
    if (!value) continue;
    if (Tree* target = reach(root, *steps, where, problems, shown)) *target = std::move(*value);
  }
}

}  // namespace chorus::config
