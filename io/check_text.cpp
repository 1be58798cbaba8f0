#include <chorus/io/check_text.h>
#include <chorus/io/unicode.h>

#include <cstdio>

namespace chorus {
namespace {

/// Alphabets whose letters look alike, so that a wrong one goes unseen.
char script(char32_t c) {
  if ((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= 0xC0 && c <= 0x24F)) return 'L';
  if (c >= 0x370 && c <= 0x3FF) return 'G';
  if (c >= 0x400 && c <= 0x52F) return 'C';
  return 0;
}

/// Appending keeps GCC 12 from warnings about memory that it makes up.
std::string quoted(const std::string& text) {
  std::string out = "'";
  out += text;
  return out += '\'';
}

std::string code(char32_t c) {
  char text[16];
  std::snprintf(text, sizeof text, "U+%04X", static_cast<unsigned>(c));
  return text;
}

}  // namespace

std::vector<Finding> check_text(const std::string& text) {
  std::vector<Finding> out;
  const auto warn = [&](const char* kind, std::string what) { out.push_back({Severity::warning, kind, "", std::move(what)}); };
  if (plain_words(text).empty())
    warn("no text", text.empty() ? "the text is empty" : quoted(text) + " has no letter and no digit");
  std::set<std::string> odd;
  std::u32string word;
  char first = 0;
  bool mixed = false;
  for (const char32_t c : code_points(text + ' ')) {
    if (is_odd(c)) odd.insert(code(c));
    if (is_letter(c)) {
      const char here = script(c);
      if (here && first && here != first) mixed = true;
      if (here) first = here;
      word += c;
      continue;
    }
    if (mixed) warn("mixed scripts", quoted(to_utf8(word)) + " has letters of two alphabets");
    word.clear();
    first = 0, mixed = false;
  }
  for (const std::string& c : odd) warn("odd characters", c + " in " + quoted(text));
  if (composed(text) != text) warn("not composed", quoted(text) + " has letters and accents apart (normalise to NFC)");
  return out;
}

}  // namespace chorus
