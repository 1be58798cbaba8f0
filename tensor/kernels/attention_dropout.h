// Dropout of attention probabilities: factors that depend on sample, query, key and head only, so that backward draws them
// again and no packing changes them.
#pragma once
#include <chorus/core/rng.h>
#include <chorus/tensor/kernels/attention_blocks.h>
#include <chorus/tensor/kernels/random_bits.h>

namespace chorus::kernel {

/// Draws below `threshold` (of 2^16) drop; what stays is multiplied by `scale`, as in dropout.
struct DropoutRate {
  explicit DropoutRate(double p) : threshold(static_cast<std::uint32_t>(std::lround(p * 65536))) {}
  std::uint32_t threshold;
  double scale() const { return 65536.0 / (65536.0 - threshold); }
};

/// factors[keys, block_queries] for queries [query, query + width) and keys [key, key + keys) of a sequence; `key` is a
/// multiple of 8. Key position k draws number k % 8 of the counter's eight: low half before high half, word by word.
template <class C>
void fill_dropout(const AttentionOptions& options, std::uint32_t sample, std::int64_t head, std::int64_t query,
                  std::int64_t width, std::int64_t key, std::int64_t keys, C* factors) {
  const DropoutRate rate(options.dropout);
  const Vec<C> threshold = all(static_cast<C>(rate.threshold)), kept = all(static_cast<C>(rate.scale()));
  for (std::int64_t q = 0; q < width; q += random_blocks)
    for (std::int64_t k = 0; k < keys; k += draws_per_block) {
      std::uint32_t words[4][random_blocks];
      random_words(options.key,
                   {sample, static_cast<std::uint32_t>(query + q), static_cast<std::uint32_t>((key + k) / draws_per_block),
                    static_cast<std::uint32_t>(options.first_head + head)},
                   1, words);
      for (std::int64_t e = 0; e < std::min(draws_per_block, keys - k); ++e)
        for (std::int64_t i = 0; i < std::min(random_blocks, width - q); i += lanes<C>) {
          detail::vector_of<std::uint32_t, lanes<C>> bits;
          std::memcpy(&bits, words[e / 2] + i, sizeof(bits));
          const Vec<C> draw = __builtin_convertvector((e % 2 ? bits >> 16 : bits) & 0xffffu, Vec<C>);
          store<C>(factors + (k + e) * block_queries<C> + q + i, draw >= threshold ? kept : Vec<C>{});
        }
    }
}

}  // namespace chorus::kernel
