// Dropout of attention probabilities: factors that depend on sample, query, key and head only, so that backward draws them
// again and no packing changes them.
#pragma once
#include <chorus/core/rng.h>
#include <chorus/tensor/kernels/attention_blocks.h>

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
  const C kept = static_cast<C>(rate.scale());
  const RandomKey random = options.key;
  std::uint32_t words[4][block_queries<C>];
  for (std::int64_t k = 0; k < keys; k += 8) {
    const auto group = static_cast<std::uint32_t>((key + k) / 8);
#pragma omp simd
    for (std::int64_t q = 0; q < width; ++q) {
      const auto block =
          philox(random, {sample, static_cast<std::uint32_t>(query + q), group, static_cast<std::uint32_t>(head)});
      words[0][q] = block[0];
      words[1][q] = block[1];
      words[2][q] = block[2];
      words[3][q] = block[3];
    }
    for (std::int64_t e = 0; e < std::min<std::int64_t>(8, keys - k); ++e) {
      const std::uint32_t* word = words[e / 2];
      const int shift = e % 2 ? 16 : 0;
      C* row = factors + (k + e) * block_queries<C>;
#pragma omp simd
      for (std::int64_t q = 0; q < width; ++q) row[q] = (word[q] >> shift & 0xffffu) < rate.threshold ? C{0} : kept;
    }
  }
}

}  // namespace chorus::kernel
