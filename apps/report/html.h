// Pieces of HTML: text that can't break out of its place, figures that carry what they stand for.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace chorus::report {

/// For text and for attributes in double quotes. What is no UTF-8, and control characters, become U+FFFD.
std::string escape(std::string_view text);

/// How a number is shown: the text is value / scale with so many digits, and the unit behind it.
struct Format {
  double scale = 1;
  int digits = 0;         ///< behind the point; negative: so many significant digits
  std::string_view unit;  ///< with its space where one belongs
};

/// "12,300", "-0.25", "3.1e-05" (significant digits, beyond a million or below a thousandth); "–" for what is no number.
std::string decimal(double value, int digits);
std::string formatted(double value, const Format& format);
/// Binary units: "812 MiB".
Format bytes_format(double bytes);
/// "38.5 ms", "12.3 s", "3 min 05 s", "1 h 02 min".
std::string duration(double seconds);

/// `<data value="exact" data-key="key" data-scale="...">text</data>`: whoever doubts a figure finds its full digits, and which
/// sum, mean or line of metrics.jsonl it is (apps/report/figures.h), in the page itself.
std::string figure(std::string_view key, double value, const Format& format);
std::string duration_figure(std::string_view key, double seconds);

/// The shortest text that reads back as the same number.
std::string exact(double value);
/// "2026-11-29 22:15 UTC"
std::string date(double seconds_since_1970);

}  // namespace chorus::report
