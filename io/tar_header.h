// One 512-byte header block of a tar file.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace chorus::tar {

inline constexpr std::uint64_t block = 512;
using Block = std::array<char, block>;

bool is_zero(const Block& header);
/// Whether the checksum fits; old archives sum signed bytes.
bool checksum_fits(const Block& header);
char type(const Block& header);
/// Octal digits or, beyond 8 GiB, GNU's big-endian binary; nothing if it is neither.
std::optional<std::uint64_t> size(const Block& header);
/// With the prefix that POSIX archives may carry.
std::string name(const Block& header);
std::string link_name(const Block& header);

/// Calls use(key, value) for every record "<length> <key>=<value>\n"; false if one is malformed.
template <class Use>
bool pax_records(std::string_view text, Use use) {
  while (!text.empty()) {
    std::size_t length = 0, digits = 0;
    while (digits < text.size() && digits < 10 && text[digits] >= '0' && text[digits] <= '9')
      length = 10 * length + static_cast<std::size_t>(text[digits++] - '0');
    const std::size_t equals = text.find('=');
    if (digits == 0 || digits >= text.size() || text[digits] != ' ' || length > text.size() || length < digits + 3 ||
        text[length - 1] != '\n' || equals == text.npos || equals <= digits || equals >= length)
      return false;
    use(text.substr(digits + 1, equals - digits - 1), text.substr(equals + 1, length - equals - 2));
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace chorus::tar
