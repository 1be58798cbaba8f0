#include <chorus/core/config/read.h>
#include <chorus/core/text.h>

#include <algorithm>
#include <cmath>

namespace chorus::config {
namespace {

/// The candidate with the fewest edits, unless that is so many that it is no misspelling.
const std::string* nearest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string* best = nullptr;
  std::size_t fewest = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const auto& candidate : candidates) {
    const std::size_t edits = edit_distance(word, candidate);
    if (edits < fewest) fewest = edits, best = &candidate;
  }
  return best;
}

std::string_view leaf(std::string_view path) { return path.substr(path.find_last_of('.') + 1); }
std::string_view parent(std::string_view path) { return path.substr(0, path.size() - leaf(path).size()); }

}  // namespace

void report_unknown(ReadState& state) {
  for (const auto& [place, path] : state.unknown) {
    std::vector<std::string> siblings;
    for (const auto& known : state.known)
      if (parent(known) == parent(path)) siblings.emplace_back(leaf(known));
    std::string text = path + ": unknown key";
    const std::string word(leaf(path));
    const auto elsewhere = std::ranges::find_if(state.known, [&](const std::string& known) { return leaf(known) == word; });
    if (const auto* sibling = nearest(word, siblings)) {
      text += "; the nearest known key is " + std::string(parent(path)) + *sibling;
    } else if (elsewhere != state.known.end()) {
      text += "; there is " + *elsewhere;
    } else {
      std::ranges::sort(siblings);
      siblings.erase(std::unique(siblings.begin(), siblings.end()), siblings.end());
      text += "; known here: ";
      for (std::size_t i = 0; i < siblings.size(); ++i) text += (i ? ", " : "") + siblings[i];
    }
    state.problems.add(place, text);
  }
}

void report_value(ReadState& state, const Tree& tree, const std::string& path, const std::string& expected,
                  const std::vector<std::string>& words) {
  std::string text = path + " = " + describe(tree) + ": expected " + expected;
  if (tree.kind == Kind::string)
    if (const auto* word = nearest(tree.text, words)) text += "; the nearest is \"" + *word + '"';
  state.problems.add(tree.place, text);
}

bool read_scalar(const Tree& tree, bool& out) {
  out = tree.boolean;
  return tree.kind == Kind::boolean;
}

bool read_scalar(const Tree& tree, double& out) {
  // TOML can say inf and nan; no key means them.
  out = tree.kind == Kind::integer ? static_cast<double>(tree.integer) : tree.real;
  return tree.kind == Kind::integer || (tree.kind == Kind::real && std::isfinite(tree.real));
}

bool read_scalar(const Tree& tree, std::string& out) {
  // On the command line the shell has eaten the quotes: run.name=7 means the text.
  const bool typed =
      tree.place.argument >= 0 && (tree.kind == Kind::boolean || tree.kind == Kind::integer || tree.kind == Kind::real);
  if (tree.kind != Kind::string && !typed) return false;
  out = tree.text;
  return true;
}

bool read_scalar(const Tree& tree, std::int64_t& out) {
  out = tree.integer;
  return tree.kind == Kind::integer;
}

}  // namespace chorus::config
