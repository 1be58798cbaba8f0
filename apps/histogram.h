// Bars of text, for terminals and logs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace chorus {

struct Bar {
  std::string label;
  std::int64_t count = 0;
};

/// A line per bar: label, count, and a bar in proportion to the largest, at most `width` columns; something that is there
/// shows.
std::string histogram(const std::vector<Bar>& bars, int width = 50);

/// Durations in seconds by classes that widen with length.
std::vector<Bar> duration_bars(const std::vector<double>& seconds);

/// Columns that UTF-8 text takes, accents aside.
std::size_t columns(const std::string& text);

}  // namespace chorus
