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
  using Draws = detail::vector_of<C, philox_lanes>;
  const Draws threshold = Draws{} + static_cast<C>(rate.threshold), kept = Draws{} + static_cast<C>(rate.scale());
  for (std::int64_t q = 0; q < width; q += philox_lanes)
    for (std::int64_t k = 0; k < keys; k += 8) {
      PhiloxVector c[4] = {PhiloxVector{} + sample, PhiloxVector{} + static_cast<std::uint64_t>(query + q),
                           PhiloxVector{} + static_cast<std::uint64_t>((key + k) / 8),
                           PhiloxVector{} + static_cast<std::uint64_t>(head)};
      for (int lane = 0; lane < philox_lanes; ++lane) c[1][lane] += static_cast<std::uint64_t>(lane);
      philox_rounds(options.key, c);
      for (int e = 0; e < std::min<std::int64_t>(8, keys - k); ++e) {
        const Draws draw = __builtin_convertvector((e % 2 ? c[e / 2] >> 16 : c[e / 2]) & 0xffffu, Draws);
        const Draws factor = draw >= threshold ? kept : Draws{};
        std::memcpy(factors + (k + e) * block_queries<C> + q, &factor, sizeof(factor));
      }
    }
}

}  // namespace chorus::kernel
