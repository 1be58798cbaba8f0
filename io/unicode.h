// Text by Unicode's tables (utf8proc), the same in every locale.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

/// Where the first byte lies that belongs to no well-formed UTF-8 sequence; npos if there is none.
std::size_t first_bad_utf8(std::string_view text);

/// The code points of well-formed UTF-8; anything else is an error that names the byte.
std::u32string code_points(std::string_view text);
std::string to_utf8(std::u32string_view text);
/// The characters of any bytes: what belongs to no sequence of UTF-8 is one of its own.
std::vector<std::string_view> split_characters(std::string_view text);

/// Normalisation form C: a letter and its accents become one code point where there is one. Well-formed UTF-8 only.
std::string composed(std::string_view text);

char32_t to_lower(char32_t c);
bool is_letter(char32_t c);  ///< of any script, combining marks included
bool is_digit(char32_t c);   ///< decimal digits of any script
/// Controls, invisible format characters, private and unassigned code points, U+FFFD: a transcript has no use for them.
bool is_odd(char32_t c);

/// What corpora are compared and split by: composed, lower case, letters, digits and apostrophes only, words parted by
/// single spaces. Typographic apostrophes become '.
std::string plain_words(std::string_view text);

}  // namespace chorus
