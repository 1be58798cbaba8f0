#include <chorus/core/rng.h>
#include <chorus/io/features.h>
#include <chorus/tensor/kernels/random_bits.h>
#include <chorus/tensor/kernels/vec.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace chorus {
namespace {

constexpr int lanes = kernel::lanes<float>;
using Lanes = kernel::Vec<float>;
using Words = kernel::detail::vector_of<std::uint32_t, lanes>;
constexpr int calls = 2, run = calls * 2 * kernel::random_blocks;  // of random_words, and how many numbers they give

Words words_at(const std::uint32_t* from) {
  Words w;
  std::memcpy(&w, from, sizeof(w));
  return w;
}
/// Of words as signed numbers, which every processor converts.
Lanes to_float(Words w) { return __builtin_convertvector(std::bit_cast<kernel::IntVec<float>>(w), Lanes); }

/// u in (0, 1] of the 53 bits that start with `high`. What is left of a small one still has a float's precision.
Lanes uniform(Words high, Words low) {
  const Words upper = high >> 8, lower = ((high & 0xff) << 16) | (low >> 16);  // 24 bits each
  return to_float(upper) * 0x1p-24f + (to_float(lower) * 0x1p-48f + 0x1p-53f);
}

/// Cosine and sine of a whole turn times w / 2^32, by Taylor series about the nearest quarter turn.
struct OnCircle {
  Lanes cosine, sine;
  explicit OnCircle(Words w) {
    const Words quarters = (w + (1u << 29)) >> 30;                                // 0 to 3
    const Lanes t = to_float(w - (quarters << 30)) * 0x1.921fb6p-30f, z = t * t;  // |t| <= pi / 4
    const Lanes s = t + t * z * (-1.0f / 6 + z * (1.0f / 120 + z * (-1.0f / 5040 + z * (1.0f / 362880))));
    const Lanes c = 1.0f + z * (-0.5f + z * (1.0f / 24 + z * (-1.0f / 720 + z * (1.0f / 40320))));
    const auto swap = (quarters & 1) != 0;
    const Lanes x = swap ? s : c, y = swap ? c : s;
    cosine = ((quarters + 1) & 2) != 0 ? -x : x;
    sine = (quarters & 2) != 0 ? -y : y;
  }
};

/// The numbers of fill_normal (core/rng.h), computed in float: from the same random bits, by the same formula.
void normal_run(RandomKey key, std::uint64_t first_block, float deviation, float out[run]) {
  std::uint32_t words[calls][4][kernel::random_blocks];
  for (auto& part : words) {
    kernel::random_words(
        key, {static_cast<std::uint32_t>(first_block), static_cast<std::uint32_t>(first_block >> 32), 0, 0xffffffffu}, 0, part);
    first_block += kernel::random_blocks;
  }
#pragma GCC unroll 4
  for (int i = 0; i < calls * kernel::random_blocks; i += lanes) {
    const auto& part = words[i / kernel::random_blocks];
    const int at = i % kernel::random_blocks;
    const Lanes square = -2.0f * kernel::log<float>(uniform(words_at(part[0] + at), words_at(part[1] + at)));
    Lanes radius;
    for (int l = 0; l < lanes; ++l) radius[l] = std::sqrt(square[l]);
    const OnCircle point(words_at(part[2] + at));
    const Lanes a = radius * deviation * point.cosine, b = radius * deviation * point.sine;
    for (int l = 0; l < lanes; ++l) {
      out[2 * (i + l)] = a[l];
      out[2 * (i + l) + 1] = b[l];
    }
  }
}

}  // namespace

void add_dither(std::span<float> samples, double deviation, std::uint64_t seed, std::uint64_t epoch, std::int64_t sample) {
  if (deviation == 0) return;
  const RandomKey key = random_key(seed, epoch, "dither");
  // Every sample owns 2^32 numbers of the stream: 74 hours at 16 kHz.
  std::uint64_t block = static_cast<std::uint64_t>(sample) << 31;
  float noise[run];
  for (std::size_t i = 0; i < samples.size(); i += run, block += run / 2) {
    normal_run(key, block, static_cast<float>(deviation), noise);
    const std::size_t many = std::min<std::size_t>(run, samples.size() - i);
    for (std::size_t k = 0; k < many; ++k) samples[i + k] += noise[k];
  }
}

}  // namespace chorus
