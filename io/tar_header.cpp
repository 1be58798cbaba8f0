#include <chorus/io/tar_header.h>

#include <algorithm>

namespace chorus::tar {
namespace {

/// A field of fixed width, ended by a zero byte if it is shorter.
std::string_view field(const Block& header, std::size_t at, std::size_t width) {
  const std::string_view all(header.data() + at, width);
  return all.substr(0, all.find('\0'));
}

std::optional<std::uint64_t> octal(std::string_view text) {
  std::uint64_t value = 0;
  bool any = false, ended = false;
  for (const char c : text) {
    if (c == ' ') {
      ended = any;
    } else if (c >= '0' && c <= '7' && !ended) {
      value = 8 * value + static_cast<std::uint64_t>(c - '0');
      any = true;
    } else {
      return {};
    }
  }
  if (!any) return {};
  return value;
}

}  // namespace

bool is_zero(const Block& header) {
  return std::ranges::all_of(header, [](char c) { return c == 0; });
}

bool checksum_fits(const Block& header) {
  const auto given = octal(field(header, 148, 8));
  if (!given) return false;
  std::int64_t plain = 0, with_sign = 0;
  for (std::size_t i = 0; i < block; ++i) {
    const char c = i >= 148 && i < 156 ? ' ' : header[i];  // the checksum itself counts as spaces
    plain += static_cast<unsigned char>(c);
    with_sign += static_cast<signed char>(c);
  }
  const auto sum = static_cast<std::int64_t>(*given);
  return sum == plain || sum == with_sign;
}

char type(const Block& header) { return header[156]; }

std::optional<std::uint64_t> size(const Block& header) {
  const auto first = static_cast<unsigned char>(header[124]);
  if (first < 0x80) return octal(field(header, 124, 12));
  if (first != 0x80) return {};  // negative, or more than 2^88
  std::uint64_t value = 0;
  for (std::size_t i = 125; i < 136; ++i) {
    if (value >> 56) return {};
    value = value << 8 | static_cast<unsigned char>(header[i]);
  }
  return value;
}

std::string name(const Block& header) {
  const std::string_view own = field(header, 0, 100), prefix = field(header, 345, 155);
  // GNU archives ("ustar  ") keep times where POSIX ones ("ustar", zero) keep the prefix.
  const bool posix = std::string_view(header.data() + 257, 6) == std::string_view("ustar\0", 6);
  return posix && !prefix.empty() ? std::string(prefix) + '/' + std::string(own) : std::string(own);
}

std::string link_name(const Block& header) { return std::string(field(header, 157, 100)); }

}  // namespace chorus::tar
