// Counter-based random numbers (Philox4x32-10; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
// A value is a pure function of (key, counter): it does not depend on who draws it, in which order or on how many ranks.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace chorus {

using RandomCounter = std::array<std::uint32_t, 4>;
using RandomBlock = std::array<std::uint32_t, 4>;

/// 64 bits that name one stream: (seed, path) for initialisation, (seed, step, path) for everything drawn in a step.
struct RandomKey {
  std::uint64_t value = 0;
  friend bool operator==(RandomKey, RandomKey) = default;
};
RandomKey random_key(std::uint64_t seed, std::string_view path);
RandomKey random_key(std::uint64_t seed, std::uint64_t step, std::string_view path);
/// The same with a path hashed beforehand by `path_hash`.
RandomKey random_key(std::uint64_t seed, std::uint64_t step, std::uint64_t path);
std::uint64_t path_hash(std::string_view path);

/// Ten Philox rounds.
constexpr RandomBlock philox(RandomKey key, RandomCounter counter) {
  auto k0 = static_cast<std::uint32_t>(key.value), k1 = static_cast<std::uint32_t>(key.value >> 32);
  auto [c0, c1, c2, c3] = counter;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const auto n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// Draws one after another from a stream of its own, for host-side choices (shuffling, augmentation).
class RandomStream {
 public:
  explicit RandomStream(RandomKey key, std::uint64_t stream = 0) : key_(key), stream_(stream) {}
  std::uint32_t bits();
  double uniform();                      ///< in [0, 1)
  std::uint64_t below(std::uint64_t n);  ///< in [0, n), unbiased
  double normal();                       ///< mean 0, deviation 1
  template <class T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  RandomKey key_;
  std::uint64_t stream_, next_ = 0;
  RandomBlock block_{};
  int used_ = 4;
};

/// Element i of `out` is value number first + i of the stream: any sharding of a tensor gets the same bits.
/// Logarithm and cosine are our own polynomials in explicit fused multiply-adds, so no library or vector width matters.
void fill_uniform(RandomKey key, std::uint64_t first, std::span<float> out, double low, double high);
void fill_uniform(RandomKey key, std::uint64_t first, std::span<double> out, double low, double high);
void fill_normal(RandomKey key, std::uint64_t first, std::span<float> out, double mean, double deviation);
void fill_normal(RandomKey key, std::uint64_t first, std::span<double> out, double mean, double deviation);

}  // namespace chorus
