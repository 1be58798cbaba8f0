#include <chorus/core/error.h>
#include <chorus/core/rng.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

// This file is compiled with -ffp-contract=off: a product and a sum are fused exactly where std::fma says so, whatever the
// compiler and the vector width.
namespace chorus {
namespace {

constexpr double two_to_minus_53 = 0x1p-53;

// A bijection of 64 bits in which every input bit reaches every output bit (the finaliser of MurmurHash3, Appleby 2011).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}
std::uint64_t combine(std::uint64_t h, std::uint64_t next) { return mix(h * 0x9e3779b97f4a7c15ULL + mix(next) + 1); }

// The upper 53 bits of two words, as an integer.
std::uint64_t bits_53(std::uint32_t high, std::uint32_t low) { return (std::uint64_t{high} << 32 | low) >> 11; }

// Natural logarithm of a normal x > 0, within 2 ulp. x = 2^e m with m in [sqrt(1/2), sqrt(2)); with s = (m-1)/(m+1),
// log m = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172: eleven terms leave less than 1e-18.
double log_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  constexpr std::uint64_t sqrt_half = 0x3fe6a09e667f3bcdULL;
  const std::int64_t e = static_cast<std::int64_t>(bits - sqrt_half) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(e) << 52));
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 1.0 / 21;
  for (const double c : {1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3})
    p = std::fma(p, z, c);
  const double log_m = 2.0 * std::fma(s * z, p, s);
  return std::fma(static_cast<double>(e), std::numbers::ln2, log_m);
}

struct Point {
  double cosine, sine;
};
// cos and sin of 2 pi u, u in [0, 1), by Taylor series about the nearest quarter turn; the reduction is exact.
Point on_circle(double u) {
  const double quarters = std::floor(std::fma(u, 4.0, 0.5));
  const double t = 2.0 * std::numbers::pi * std::fma(quarters, -0.25, u), z = t * t;  // |t| <= pi/4
  double c = 1.0 / 20922789888000.0;                                                  // 1/16!
  for (const double a :
       {-1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0})
    c = std::fma(c, z, a);
  double s = 1.0 / 355687428096000.0;  // 1/17!
  for (const double a :
       {-1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0})
    s = std::fma(s, z, a);
  s = std::fma(s * z, t, t);
  const auto q = static_cast<std::int64_t>(quarters);
  const double x = q & 1 ? s : c, y = q & 1 ? c : s;
  return {(q + 1) & 2 ? -x : x, q & 2 ? -y : y};
}

// Two standard normal values of one block (Box and Muller 1958). The first uniform lies in (0, 1].
Point normal_pair(const RandomBlock& b) {
  const double u = static_cast<double>(bits_53(b[0], b[1]) + 1) * two_to_minus_53;
  const double radius = std::sqrt(-2.0 * log_of(u));
  const Point p = on_circle(static_cast<double>(bits_53(b[2], b[3])) * two_to_minus_53);
  return {radius * p.cosine, radius * p.sine};
}
Point uniform_pair(const RandomBlock& b) {
  return {static_cast<double>(bits_53(b[0], b[1])) * two_to_minus_53,
          static_cast<double>(bits_53(b[2], b[3])) * two_to_minus_53};
}

// Elements 2k and 2k+1 come from block k. Work goes in whole runs of blocks aligned to multiples of `run`, so that an element
// is computed by the same instructions wherever a range begins or ends.
template <class T, class Pair>
void fill(RandomKey key, std::uint64_t first, std::span<T> out, double shift, double scale, Pair pair) {
  constexpr std::uint64_t run = 64;  // elements
  if (out.empty()) return;
  const std::uint64_t begin = first / run, end = (first + out.size() - 1) / run + 1;
#pragma omp parallel for schedule(static) if (out.size() > 65536)
  for (std::uint64_t r = begin; r < end; ++r) {
    std::array<double, run> values;
    for (std::uint64_t i = 0; i < run / 2; ++i) {
      const std::uint64_t k = r * (run / 2) + i;
      // The last word keeps fills apart from every RandomStream below number 2^64 - 2^32.
      const Point p = pair(philox(key, {static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(k >> 32), 0, 0xffffffffu}));
      values[2 * i] = std::fma(p.cosine, scale, shift);
      values[2 * i + 1] = std::fma(p.sine, scale, shift);
    }
    const std::uint64_t from = std::max(first, r * run), to = std::min(first + out.size(), (r + 1) * run);
    for (std::uint64_t e = from; e < to; ++e) out[e - first] = static_cast<T>(values[e - r * run]);
  }
}

}  // namespace

std::uint64_t path_hash(std::string_view path) {
  std::uint64_t h = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : path) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix(h);
}

RandomKey random_key(std::uint64_t seed, std::string_view path) { return {combine(mix(seed), path_hash(path))}; }
RandomKey random_key(std::uint64_t seed, std::uint64_t step, std::uint64_t path) {
  return {combine(combine(mix(seed), step + 0x5bd1e995), path)};
}
RandomKey random_key(std::uint64_t seed, std::uint64_t step, std::string_view path) {
  return random_key(seed, step, path_hash(path));
}

std::uint32_t RandomStream::bits() {
  if (used_ == 4) {
    block_ = philox(key_, {static_cast<std::uint32_t>(next_), static_cast<std::uint32_t>(next_ >> 32),
                           static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)});
    ++next_;
    used_ = 0;
  }
  return block_[static_cast<std::size_t>(used_++)];
}

double RandomStream::uniform() {
  const std::uint32_t high = bits(), low = bits();
  return static_cast<double>(bits_53(high, low)) * two_to_minus_53;
}

std::uint64_t RandomStream::below(std::uint64_t n) {
  require(n > 0, "RandomStream::below", "n is 0; at least 1 is needed");
  const std::uint64_t surplus = (0 - n) % n;  // 2^64 mod n: the draws below it would make small results more likely
  for (;;) {
    const std::uint32_t high = bits(), low = bits();
    const std::uint64_t x = std::uint64_t{high} << 32 | low;
    if (x >= surplus) return x % n;
  }
}

double RandomStream::normal() {
  RandomBlock block;
  for (auto& word : block) word = bits();
  return normal_pair(block).cosine;
}

void fill_uniform(RandomKey key, std::uint64_t first, std::span<float> out, double low, double high) {
  fill(key, first, out, low, high - low, uniform_pair);
}
void fill_uniform(RandomKey key, std::uint64_t first, std::span<double> out, double low, double high) {
  fill(key, first, out, low, high - low, uniform_pair);
}
void fill_normal(RandomKey key, std::uint64_t first, std::span<float> out, double mean, double deviation) {
  fill(key, first, out, mean, deviation, normal_pair);
}
void fill_normal(RandomKey key, std::uint64_t first, std::span<double> out, double mean, double deviation) {
  fill(key, first, out, mean, deviation, normal_pair);
}

}  // namespace chorus
