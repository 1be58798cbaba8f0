// Small helpers for text and sequences.
#pragma once
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

/// Fewest insertions, deletions and substitutions that turn `a` into `b` (Levenshtein 1966). O(|a||b|) time, O(|b|) space.
template <class T>
std::size_t edit_distance(std::span<const T> a, std::span<const T> b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  return edit_distance(std::span<const char>(a.data(), a.size()), std::span<const char>(b.data(), b.size()));
}

/// "0 B", "1.50 KiB", "2.00 GiB".
std::string human_bytes(double bytes);
/// "950", "1.23 k", "7.00 G": powers of 1000, for counts, FLOPs and rates.
std::string human_number(double value);

}  // namespace chorus
