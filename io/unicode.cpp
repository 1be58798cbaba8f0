#include <chorus/core/error.h>
#include <chorus/io/unicode.h>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>

namespace chorus {
namespace {

/// The next code point at `at`, which moves on; negative if it is ill-formed.
utf8proc_int32_t next(std::string_view text, std::size_t& at) {
  utf8proc_int32_t c = -1;
  const auto used = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                     static_cast<utf8proc_ssize_t>(text.size() - at), &c);
  if (used <= 0) return -1;
  at += static_cast<std::size_t>(used);
  return c;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

std::size_t first_bad_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();)
    if (next(text, at) < 0) return at;
  return text.npos;
}

std::u32string code_points(std::string_view text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t here = at;
    const auto c = next(text, at);
    require(c >= 0, "code_points", "byte ", here, " (", static_cast<int>(static_cast<unsigned char>(text[here])), ") of ",
            text.size(), " is not UTF-8");
    out += static_cast<char32_t>(c);
  }
  return out;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  for (const char32_t c : text) {
    utf8proc_uint8_t bytes[4];
    const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
  }
  return out;
}

std::vector<std::string_view> split_characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    std::size_t k = 1;
    while (k < length && i + k < text.size() && (text[i + k] & 0xC0) == 0x80) ++k;
    out.push_back(text.substr(i, k));
    i += k;
  }
  return out;
}

std::string composed(std::string_view text) {
  utf8proc_uint8_t* out = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()), &out,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
  require(size >= 0, "composed", "the text can't be normalised: ", utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(out), static_cast<std::size_t>(size)};
}

char32_t to_lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }

bool is_letter(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_odd(char32_t c) {
  const auto kind = category(c);
  return c == 0xFFFD || kind == UTF8PROC_CATEGORY_CN || kind >= UTF8PROC_CATEGORY_CC;
}

std::string plain_words(std::string_view text) {
  std::u32string out;
  bool gap = false;
  for (char32_t c : code_points(composed(text))) {
    if (c == U'\u2019' || c == U'\u2018') c = U'\'';
    if (is_letter(c) || is_digit(c) || c == U'\'') {
      if (gap && !out.empty()) out += U' ';
      gap = false;
      out += to_lower(c);
    } else {
      gap = true;
    }
  }
  return to_utf8(out);
}

}  // namespace chorus
