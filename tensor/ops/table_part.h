#pragma once
#include <chorus/core/error.h>

#include <cstdint>

namespace chorus {

/// Which rows of a larger table (an embedding's words, a head's classes) a tensor holds: [first, first + its own rows) of
/// `total`. A total of 0 says that the tensor is the whole table.
struct TablePart {
  std::int64_t first = 0, total = 0;

  /// Rows of the whole table, for a tensor with `rows` of them. Throws when these don't lie in it.
  std::int64_t total_of(const char* op, std::int64_t rows) const {
    require(first >= 0 && (total ? first + rows <= total : first == 0), op, rows, " rows from ", first, " on of a table with ",
            total);
    return total ? total : rows;
  }
};

}  // namespace chorus
