#include <chorus/apps/report/diff.h>
#include <chorus/core/text.h>
#include <chorus/io/metrics.h>
#include <chorus/io/unicode.h>

#include <algorithm>
#include <functional>

namespace chorus::report {
namespace {

struct Step {
  Edit edit;  ///< equal stands for a pair, whose parts may differ
  std::size_t a, b;
};

/// The cheapest way from one sequence to the other (Wagner and Fischer 1974), pairs before deletions before insertions.
std::vector<Step> align(std::size_t n, std::size_t m, const std::function<int(std::size_t, std::size_t)>& pair,
                        const std::function<int(std::size_t)>& missing, const std::function<int(std::size_t)>& added) {
  std::vector<std::vector<int>> cost(n + 1, std::vector<int>(m + 1, 0));
  for (std::size_t i = n + 1; i-- > 0;) {
    for (std::size_t j = m + 1; j-- > 0;) {
      if (i == n && j == m) continue;
      int best = 1 << 30;
      if (i < n && j < m) best = cost[i + 1][j + 1] + pair(i, j);
      if (i < n) best = std::min(best, cost[i + 1][j] + missing(i));
      if (j < m) best = std::min(best, cost[i][j + 1] + added(j));
      cost[i][j] = best;
    }
  }
  std::vector<Step> steps;
  for (std::size_t i = 0, j = 0; i < n || j < m;) {
    if (i < n && j < m && cost[i][j] == cost[i + 1][j + 1] + pair(i, j))
      steps.push_back({Edit::equal, i++, j++});
    else if (i < n && cost[i][j] == cost[i + 1][j] + missing(i))
      steps.push_back({Edit::missing, i++, j});
    else
      steps.push_back({Edit::added, i, j++});
  }
  return steps;
}

using Strings = std::vector<std::string_view>;

int distance(const Strings& a, const Strings& b) {
  return static_cast<int>(edit_distance(std::span<const std::string_view>(a), std::span<const std::string_view>(b)));
}

void add(std::vector<Piece>& pieces, Edit edit, std::string_view text) {
  if (!pieces.empty() && pieces.back().edit == edit)
    pieces.back().text += text;
  else
    pieces.push_back({edit, std::string(text)});
}

/// Two words that stand for each other.
void add_pair(std::vector<Piece>& pieces, std::string_view reference, std::string_view transcript) {
  if (reference == transcript) return add(pieces, Edit::equal, reference);
  const Strings a = split_characters(reference), b = split_characters(transcript);
  // Letters of words that have little in common would only look like confetti.
  if (2 * distance(a, b) > static_cast<int>(std::max(a.size(), b.size()))) {
    add(pieces, Edit::missing, reference);
    return add(pieces, Edit::added, transcript);
  }
  const auto one = [](std::size_t) { return 1; };
  std::string missing, added;
  const auto flush = [&] {
    if (!missing.empty()) add(pieces, Edit::missing, missing);
    if (!added.empty()) add(pieces, Edit::added, added);
    missing.clear();
    added.clear();
  };
  for (const Step& step : align(
           a.size(), b.size(), [&](auto i, auto j) { return a[i] == b[j] ? 0 : 1; }, one, one)) {
    if (step.edit == Edit::equal && a[step.a] == b[step.b]) {
      flush();
      add(pieces, Edit::equal, a[step.a]);
      continue;
    }
    if (step.edit != Edit::added) missing += a[step.a];
    if (step.edit != Edit::missing) added += b[step.b];
  }
  flush();
}

}  // namespace

std::vector<std::string_view> words(std::string_view text) {
  constexpr std::string_view white = " \t\n\r\v\f";
  Strings out;
  for (std::size_t at = text.find_first_not_of(white); at != text.npos; at = text.find_first_not_of(white, at)) {
    const std::size_t end = std::min(text.find_first_of(white, at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end;
  }
  return out;
}

Errors count_errors(std::string_view reference, std::string_view transcript) {
  TextScore score;
  score.add(reference, transcript);
  return {score.characters.errors, score.characters.reference, score.words.errors, score.words.reference};
}

std::vector<Piece> difference(std::string_view reference, std::string_view transcript) {
  const Strings a = words(reference), b = words(transcript);
  // The table of a text of hours would fill the memory. Nobody would read it either.
  if (a.size() * b.size() > 4'000'000) return {{Edit::missing, std::string(reference)}, {Edit::added, std::string(transcript)}};
  std::vector<Strings> letters_a, letters_b;
  for (const auto word : a) letters_a.push_back(split_characters(word));
  for (const auto word : b) letters_b.push_back(split_characters(word));
  // As few wrong words as the error rate counts; among those ways the one with the fewest wrong letters.
  constexpr int word_cost = 1 << 12;
  const auto length = [](const Strings& letters) { return static_cast<int>(std::min<std::size_t>(letters.size(), 1000)); };
  const auto steps = align(
      a.size(), b.size(),
      [&](auto i, auto j) { return a[i] == b[j] ? 0 : word_cost + std::min(distance(letters_a[i], letters_b[j]), 1000); },
      [&](auto i) { return word_cost + length(letters_a[i]); }, [&](auto j) { return word_cost + length(letters_b[j]); });
  // A space belongs to the word before it, and is in a side as soon as that side has a word behind it.
  std::vector<Piece> pieces;
  bool any_a = false, any_b = false;
  for (const Step& step : steps) {
    const bool in_a = step.edit != Edit::added, in_b = step.edit != Edit::missing;
    const bool space_a = in_a && any_a, space_b = in_b && any_b;
    if (space_a && space_b)
      add(pieces, Edit::equal, " ");
    else if (space_a)
      add(pieces, Edit::missing, " ");
    else if (space_b)
      add(pieces, Edit::added, " ");
    if (in_a && in_b)
      add_pair(pieces, a[step.a], b[step.b]);
    else
      add(pieces, step.edit, in_a ? a[step.a] : b[step.b]);
    any_a |= in_a;
    any_b |= in_b;
  }
  return pieces;
}

}  // namespace chorus::report
