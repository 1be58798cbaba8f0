// Packed sequences of awkward lengths for op cases that take Rows.
#pragma once
#include <chorus/tensor/rows.h>

#include <numeric>
#include <vector>

namespace chorus::testing {

/// Lengths that sum to `rows`: 0, 1, 2, 3, 7 and 33 rows in turn, the last one cut.
inline std::vector<std::int64_t> awkward_lengths(std::int64_t rows) {
  constexpr std::int64_t turn[] = {7, 0, 1, 33, 3, 2};
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; rows > 0; ++i) {
    lengths.push_back(std::min(rows, turn[i % 6]));
    rows -= lengths.back();
  }
  lengths.push_back(0);
  return lengths;
}

inline Rows rows_of(Context& context, const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> ids(lengths.size());
  std::iota(ids.begin(), ids.end(), 100);
  return make_rows(context, lengths, ids);
}

inline std::vector<std::int64_t> begins_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> begins{0};
  for (const auto n : lengths) begins.push_back(begins.back() + n);
  return begins;
}

}  // namespace chorus::testing
