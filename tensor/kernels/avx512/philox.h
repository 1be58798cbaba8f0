// Random numbers of core/rng.h, sixteen blocks side by side, with AVX-512's products of 32-bit numbers (GCC 12 takes products
// of 64-bit numbers for them, which are three times as slow). See tiles.h for how this folder is compiled and called.
#pragma once
#include <cstdint>

namespace chorus::kernel::avx512 {

inline constexpr int philox_blocks = 16;

/// words[w][i] = word w of philox(key, counter with counter[word] + i).
void philox(std::uint64_t key, const std::uint32_t counter[4], int word, std::uint32_t words[4][philox_blocks]);
/// The same, blocks one after another: blocks[i][w].
void philox_in_order(std::uint64_t key, const std::uint32_t counter[4], int word, std::uint32_t blocks[philox_blocks][4]);

}  // namespace chorus::kernel::avx512
