// Many Philox blocks side by side: the random numbers of core/rng.h for masks.
#pragma once
#include <chorus/core/rng.h>
#include <chorus/tensor/kernels/vec.h>

namespace chorus::kernel {

/// 64-bit lanes of one vector, each of which computes one block.
inline constexpr int philox_lanes = vector_bytes / 8;
using PhiloxVector = detail::vector_of<std::uint64_t, philox_lanes>;

/// Ten rounds on one counter per lane. Only the lower half of a lane counts, before and after: nothing is masked but the
/// operand of a product, which makes it a 32-bit one.
[[gnu::always_inline]] inline void philox_rounds(RandomKey key, PhiloxVector (&c)[4]) {
  auto k0 = static_cast<std::uint32_t>(key.value), k1 = static_cast<std::uint32_t>(key.value >> 32);
  for (int round = 0; round < 10; ++round) {
    const PhiloxVector p0 = (c[0] & 0xffffffffu) * 0xD2511F53u, p1 = (c[2] & 0xffffffffu) * 0xCD9E8D57u;
    c[0] = (p1 >> 32) ^ c[1] ^ k0;
    c[2] = (p0 >> 32) ^ c[3] ^ k1;
    c[1] = p1;
    c[3] = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

/// Eight draws of 16 bits come from a block; word w gives draw 2w in its low half and draw 2w + 1 in its high half.
inline constexpr std::int64_t draws_per_block = 8;

/// out[8 i + j] = draw j of philox(key, counter with counter[word] + i), for i in [0, blocks). Writes whole vectors:
/// `out` has room for blocks rounded up to philox_lanes.
template <int word>
void random_draws(RandomKey key, RandomCounter counter, std::int64_t blocks, std::uint16_t* out) {
  using U = PhiloxVector;
  for (std::int64_t first = 0; first < blocks; first += philox_lanes) {
    U number{};
    for (int lane = 0; lane < philox_lanes; ++lane) number[lane] = static_cast<std::uint64_t>(first + lane);
    U c[4] = {U{} + counter[0], U{} + counter[1], U{} + counter[2], U{} + counter[3]};
    c[word] += number;
    philox_rounds(key, c);
    const U front = (c[0] & 0xffffffffu) | c[1] << 32, back = (c[2] & 0xffffffffu) | c[3] << 32;
    std::uint64_t ordered[2 * philox_lanes];
    for (int lane = 0; lane < philox_lanes; ++lane) {
      ordered[2 * lane] = front[lane];
      ordered[2 * lane + 1] = back[lane];
    }
    std::memcpy(out + first * draws_per_block, ordered, sizeof(ordered));
  }
}

}  // namespace chorus::kernel
