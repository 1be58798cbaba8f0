#include <chorus/tensor/kernels/avx512/philox.h>
#include <chorus/tensor/kernels/avx512_loops.h>
#include <chorus/tensor/kernels/random_bits.h>
#include <chorus/tensor/kernels/vec.h>

#include <cstring>

namespace chorus::kernel {
namespace {

static_assert(random_blocks == avx512::philox_blocks);

/// One vector of 64-bit lanes, each of which computes one block. Only the lower half of a lane counts, before and after:
/// nothing is masked but the operand of a product, which makes it a 32-bit one.
constexpr int lanes_of_block = vector_bytes / 8;
using Lanes = detail::vector_of<std::uint64_t, lanes_of_block>;

void portable_words(RandomKey key, const RandomCounter& counter, int word, std::uint32_t words[4][random_blocks]) {
  for (int first = 0; first < random_blocks; first += lanes_of_block) {
    Lanes c[4] = {Lanes{} + counter[0], Lanes{} + counter[1], Lanes{} + counter[2], Lanes{} + counter[3]};
    for (int lane = 0; lane < lanes_of_block; ++lane) c[word][lane] += static_cast<std::uint64_t>(first + lane);
    auto k0 = static_cast<std::uint32_t>(key.value), k1 = static_cast<std::uint32_t>(key.value >> 32);
    for (int round = 0; round < 10; ++round) {
      const Lanes p0 = (c[0] & 0xffffffffu) * 0xD2511F53u, p1 = (c[2] & 0xffffffffu) * 0xCD9E8D57u;
      c[0] = (p1 >> 32) ^ c[1] ^ k0;
      c[2] = (p0 >> 32) ^ c[3] ^ k1;
      c[1] = p1;
      c[3] = p0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int w = 0; w < 4; ++w)
      for (int lane = 0; lane < lanes_of_block; ++lane) words[w][first + lane] = static_cast<std::uint32_t>(c[w][lane]);
  }
}

}  // namespace

void random_words(RandomKey key, const RandomCounter& counter, int word, std::uint32_t words[4][random_blocks]) {
  avx512_loops() ? avx512::philox(key.value, counter.data(), word, words) : portable_words(key, counter, word, words);
}

void random_draws(RandomKey key, RandomCounter counter, int word, std::int64_t blocks, std::uint16_t* out) {
  const bool wide = avx512_loops();
  for (std::int64_t first = 0; first < blocks; first += random_blocks) {
    std::uint32_t ordered[random_blocks][4];
    if (wide) {
      avx512::philox_in_order(key.value, counter.data(), word, ordered);
    } else {
      std::uint32_t words[4][random_blocks];
      portable_words(key, counter, word, words);
      for (int i = 0; i < random_blocks; ++i)
        for (int w = 0; w < 4; ++w) ordered[i][w] = words[w][i];
    }
    std::memcpy(out + first * draws_per_block, ordered, sizeof(ordered));
    counter[static_cast<std::size_t>(word)] += static_cast<std::uint32_t>(random_blocks);
  }
}

}  // namespace chorus::kernel
