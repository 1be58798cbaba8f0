#include <chorus/core/error.h>
#include <chorus/io/md5.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace chorus {
namespace {

using Digest = std::array<std::uint8_t, 16>;

Digest digest(std::string_view text) {
  std::array<std::uint32_t, 64> table;  // floor(2^32 |sin(i + 1)|), RFC 1321 section 3.4
  for (int i = 0; i < 64; ++i) table[i] = static_cast<std::uint32_t>(std::floor(std::abs(std::sin(i + 1.0)) * 0x1p32));
  constexpr int shifts[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

  // A one bit, zeros up to 56 modulo 64 bytes, the length in bits.
  std::string padded(text);
  padded.push_back(static_cast<char>(0x80));
  while (padded.size() % 64 != 56) padded.push_back(0);
  for (int i = 0; i < 8; ++i) padded.push_back(static_cast<char>((std::uint64_t{text.size()} * 8) >> (8 * i)));

  std::array<std::uint32_t, 4> state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  for (std::size_t block = 0; block < padded.size(); block += 64) {
    std::array<std::uint32_t, 16> words{};
    for (int i = 0; i < 64; ++i) words[i / 4] |= std::uint32_t{static_cast<std::uint8_t>(padded[block + i])} << (8 * (i % 4));
    auto [a, b, c, d] = state;
    for (int i = 0; i < 64; ++i) {
      const int round = i / 16;
      const std::uint32_t mixed = round == 0   ? (b & c) | (~b & d)
                                  : round == 1 ? (b & d) | (c & ~d)
                                  : round == 2 ? b ^ c ^ d
                                               : c ^ (b | ~d);
      const int word = round == 0 ? i : round == 1 ? (5 * i + 1) % 16 : round == 2 ? (3 * i + 5) % 16 : 7 * i % 16;
      const std::uint32_t turned = b + std::rotl(a + mixed + table[i] + words[word], shifts[round][i % 4]);
      a = d;
      d = c;
      c = b;
      b = turned;
    }
    state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d};
  }
  Digest result;
  for (int i = 0; i < 16; ++i) result[i] = static_cast<std::uint8_t>(state[i / 4] >> (8 * (i % 4)));
  return result;
}

}  // namespace

std::string md5(std::string_view text) {
  std::string hex;
  for (const std::uint8_t byte : digest(text)) hex += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return hex;
}

unsigned md5_modulo(std::string_view text, unsigned divisor) {
  require(divisor >= 1 && divisor <= 1u << 24, "md5_modulo", "divisor ", divisor, " is not in 1 .. 2^24");
  unsigned remainder = 0;
  for (const std::uint8_t byte : digest(text)) remainder = (remainder * 256 + byte) % divisor;
  return remainder;
}

}  // namespace chorus
