// Many Philox blocks side by side: the random numbers of core/rng.h for masks.
#pragma once
#include <chorus/core/rng.h>

namespace chorus::kernel {

inline constexpr std::int64_t random_blocks = 16;  ///< computed together

/// words[w][i] = word w of philox(key, counter with counter[word] + i).
void random_words(RandomKey key, const RandomCounter& counter, int word, std::uint32_t words[4][random_blocks]);

/// Eight draws of 16 bits come from a block; word w gives draw 2w in its low half and draw 2w + 1 in its high half.
inline constexpr std::int64_t draws_per_block = 8;

/// out[8 i + j] = draw j of philox(key, counter with counter[word] + i), for i in [0, blocks). `out` has room for blocks
/// rounded up to random_blocks.
void random_draws(RandomKey key, RandomCounter counter, int word, std::int64_t blocks, std::uint16_t* out);

}  // namespace chorus::kernel
