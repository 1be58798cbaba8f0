#include <chorus/core/config/print.h>

#include <array>
#include <charconv>
#include <cmath>

namespace chorus::config {

std::string toml_text(bool value) { return value ? "true" : "false"; }
std::string toml_text(std::int64_t value) { return std::to_string(value); }

std::string toml_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> digits;
  std::string text(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

std::string toml_text(const std::string& value) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string text = "\"";
  for (const char c : value) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      (text += '\\') += c;
    else if (c == '\n')
      text += "\\n";
    else if (c == '\t')
      text += "\\t";
    else if (code < 0x20 || code == 0x7f)
      ((text += "\\u00") += hex[code >> 4]) += hex[code & 15];
    else
      text += c;
  }
  return text + '"';
}

}  // namespace chorus::config
