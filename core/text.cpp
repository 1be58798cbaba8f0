#include <chorus/core/text.h>

#include <array>
#include <cmath>
#include <cstdio>

namespace chorus {
namespace {

template <std::size_t N>
std::string scaled(double value, double step, const std::array<const char*, N>& units) {
  std::size_t unit = 0;
  // 0.9995 of a step would print as 1000.00 of the smaller unit's three digits.
  while (unit + 1 < N && std::abs(value) >= step * (1 - 5e-6)) {
    value /= step;
    ++unit;
  }
  const bool whole = unit == 0 && value == std::floor(value);
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), whole ? "%.0f%s%s" : "%.2f%s%s", value, *units[unit] ? " " : "", units[unit]);
  return text.data();
}

}  // namespace

std::string human_bytes(double bytes) { return scaled(bytes, 1024, std::array{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}); }

std::string human_number(double value) { return scaled(value, 1000, std::array{"", "k", "M", "G", "T", "P", "E"}); }

}  // namespace chorus
