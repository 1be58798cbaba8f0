#pragma once
#include <string>
#include <vector>

namespace chorus {

/// Columns as wide as their widest cell: the first `left_columns` to the left, the others to the right. Rows may be shorter
/// than the longest.
std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t left_columns = 1);

}  // namespace chorus
