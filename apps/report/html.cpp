#include <chorus/apps/report/html.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>

namespace chorus::report {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

/// Bytes of the character that starts at text[i]; 0 when there is none (RFC 3629: neither overlong, nor a surrogate, nor too
/// high).
std::size_t valid_sequence(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t k) { return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u; };
  const unsigned lead = byte(0);
  const std::size_t length = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  for (std::size_t k = 1; k < length; ++k)
    if ((byte(k) & 0xC0) != 0x80) return 0;
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) > 0x9F) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

std::string printed(const char* format, auto... values) {
  char text[64];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

/// Commas between the thousands of the integral part.
std::string grouped(std::string_view text) {
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && i < point && (point - i) % 3 == 0 && text[i - 1] != '-') out += ',';
    out += text[i];
  }
  return out;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = valid_sequence(text, i);
    const char c = text[i];
    if (length == 0 || (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) && c != '\n' && c != '\t'))
      out += replacement;
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += text.substr(i, length);
    i += length == 0 ? 1 : length;
  }
  return out;
}

std::string decimal(double value, int digits) {
  if (std::isnan(value)) return "–";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  if (digits >= 0) return grouped(printed("%.*f", digits, value));
  const double size = std::abs(value);
  if (size != 0 && (size >= 1e6 || size < 1e-3)) return printed("%.*e", -digits - 1, value);
  const int magnitude = size > 0 ? static_cast<int>(std::floor(std::log10(size))) : 0;
  return grouped(printed("%.*f", std::max(0, -digits - 1 - magnitude), value));
}

std::string formatted(double value, const Format& format) {
  return decimal(value / format.scale, format.digits) + (std::isfinite(value) ? std::string(format.unit) : "");
}

Format bytes_format(double bytes) {
  if (bytes >= 1024. * 1024 * 1024) return {1024. * 1024 * 1024, 2, " GiB"};
  if (bytes >= 1024. * 1024) return {1024. * 1024, 0, " MiB"};
  return {1024, 0, " KiB"};
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return decimal(seconds, 0);
  if (seconds < 1) return printed("%.1f ms", 1e3 * seconds);
  if (seconds < 59.95) return printed("%.1f s", seconds);
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600) return printed("%lld min %02lld s", whole / 60, whole % 60);
  const long long minutes = std::llround(seconds / 60);
  return printed("%lld h %02lld min", minutes / 60, minutes % 60);
}

std::string exact(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

std::string figure(std::string_view key, double value, const Format& format) {
  return "<data value=\"" + exact(value) + "\" data-key=\"" + escape(key) + "\" data-scale=\"" + exact(format.scale) + "\">" +
         formatted(value, format) + "</data>";
}

std::string duration_figure(std::string_view key, double seconds) {
  return "<data value=\"" + exact(seconds) + "\" data-key=\"" + escape(key) + "\" data-scale=\"1\">" + duration(seconds) +
         "</data>";
}

std::string date(double seconds_since_1970) {
  const auto time = static_cast<std::time_t>(seconds_since_1970);
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[64];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

}  // namespace chorus::report
