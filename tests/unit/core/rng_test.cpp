#include <chorus/core/error.h>
#include <chorus/core/rng.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <vector>

namespace chorus {
namespace {

// Known answers of Random123 (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0}, {0, 0, 0, 0}), (RandomBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~std::uint64_t{0}}, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (RandomBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x299f31d0a4093822}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

template <class T>
using Fill = void (*)(RandomKey, std::uint64_t, std::span<T>, double, double);

template <class T>
void any_split_equals_the_whole(Fill<T> fill) {
  const RandomKey key = random_key(7, "a.weight");
  const std::uint64_t start = (std::uint64_t{1} << 33) - 1000;  // crosses the counter's first word
  std::vector<T> whole(100'003);
  fill(key, start, std::span(whole), -1.5, 2.5);
  RandomStream random(random_key(7, "cuts"));
  for (int trial = 0; trial < 5; ++trial) {
    std::vector<T> parts(whole.size());
    for (std::size_t i = 0; i < parts.size();) {
      const std::size_t n = std::min<std::size_t>(parts.size() - i, 1 + random.below(trial == 0 ? 3 : 5000));
      fill(key, start + i, std::span(parts).subspan(i, n), -1.5, 2.5);
      i += n;
    }
    for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(whole[i], parts[i]) << "element " << i << ", trial " << trial;
  }
}
TEST(Fill, AnySplitOfARangeHasTheBitsOfTheWhole) {
  any_split_equals_the_whole<float>(fill_uniform);
  any_split_equals_the_whole<double>(fill_uniform);
  any_split_equals_the_whole<float>(fill_normal);
  any_split_equals_the_whole<double>(fill_normal);
}

/// Shards that begin and end anywhere in a run of values computed together, and large ones that several threads fill.
template <class T>
void any_range_equals_its_part_of_the_whole(Fill<T> fill) {
  const RandomKey key = random_key(8, "b.weight");
  std::vector<T> whole(300'000);
  fill(key, 0, std::span(whole), 0.5, 1.5);
  const auto expect_part = [&](std::size_t first, std::size_t length) {
    const std::vector<T> want(whole.begin() + static_cast<std::ptrdiff_t>(first),
                              whole.begin() + static_cast<std::ptrdiff_t>(first + length));
    std::vector<T> part(length);
    fill(key, first, std::span(part), 0.5, 1.5);
    ASSERT_EQ(part, want) << length << " values from " << first << " on";
  };
  for (std::size_t first = 0; first < 40; ++first)
    for (std::size_t length = 1; length < 40; ++length) expect_part(first, length);
  for (const std::size_t first : {1, 31, 63, 64, 65, 12'345}) expect_part(first, 131'071 + first);
}
TEST(Fill, AnyRangeHasTheBitsOfItsPartOfTheWhole) {
  any_range_equals_its_part_of_the_whole<float>(fill_uniform);
  any_range_equals_its_part_of_the_whole<double>(fill_uniform);
  any_range_equals_its_part_of_the_whole<float>(fill_normal);
  any_range_equals_its_part_of_the_whole<double>(fill_normal);
}

TEST(Fill, FloatsAreTheRoundedDoubles) {
  std::vector<float> f(1000);
  std::vector<double> d(1000);
  fill_normal(random_key(1, "x"), 3, std::span(f), 0, 0.02);
  fill_normal(random_key(1, "x"), 3, std::span(d), 0, 0.02);
  for (std::size_t i = 0; i < f.size(); ++i) ASSERT_EQ(f[i], static_cast<float>(d[i])) << i;
}

// Against the library's long double: the distance from the true value in units of the radius, so near zeros of the cosine too.
TEST(Fill, FollowsTheFormulaWithinTwoUlp) {
  const RandomKey key = random_key(3, "layers.0.weight");
  std::vector<double> values(200'000), uniforms(200'000);
  fill_normal(key, 0, std::span(values), 0, 1);
  fill_uniform(key, 0, std::span(uniforms), 0, 1);
  double worst = 0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const long double radius = std::sqrt(-2 * std::log(uniforms[i] + 0x1p-53L));
    const long double angle = 2 * std::numbers::pi_v<long double> * uniforms[i + 1];
    for (const long double e : {values[i] - radius * std::cos(angle), values[i + 1] - radius * std::sin(angle)})
      if (std::abs(e / radius) > worst) worst = static_cast<double>(std::abs(e / radius)), worst_at = i;
  }
  EXPECT_LT(worst, 2 * 0x1p-52) << "at " << worst_at << ": " << values[worst_at] << ", " << values[worst_at + 1];
  EXPECT_GT(worst, 0) << "the reference is not more precise than what it checks";
}

// Guards the stream itself: a change of these bits changes every model initialised from a seed.
TEST(Fill, BitsAreThoseOfEveryMachine) {
  std::vector<double> values(4096);
  fill_normal(random_key(2024, "golden"), 0, std::span(values), 0, 1);
  std::uint64_t hash = 0;
  for (const double v : values) hash = hash * 0x100000001b3ULL + std::bit_cast<std::uint64_t>(v);
  EXPECT_EQ(hash, 14879767547126852452ULL);
}

struct Moments {
  double mean = 0, variance = 0, skew = 0, kurtosis = 0;
};
Moments moments(const std::vector<double>& x) {
  Moments m;
  const auto n = static_cast<double>(x.size());
  for (const double v : x) m.mean += v / n;
  for (const double v : x) {
    const double d = v - m.mean;
    m.variance += d * d / n;
    m.skew += d * d * d / n;
    m.kurtosis += d * d * d * d / n;
  }
  return m;
}
TEST(Fill, MomentsOfTheNormalDistribution) {
  std::vector<double> x(1'000'000);
  fill_normal(random_key(11, "moments"), 0, std::span(x), 0, 1);
  const Moments m = moments(x);  // tolerances: five standard errors
  EXPECT_NEAR(m.mean, 0, 5e-3);
  EXPECT_NEAR(m.variance, 1, 5 * std::sqrt(2e-6));
  EXPECT_NEAR(m.skew, 0, 5 * std::sqrt(15e-6));
  EXPECT_NEAR(m.kurtosis, 3, 5 * std::sqrt(96e-6));
  const auto beyond = std::count_if(x.begin(), x.end(), [](double v) { return std::abs(v) > 1.959963984540054; });
  EXPECT_NEAR(static_cast<double>(beyond), 50'000, 5 * std::sqrt(47'500.0));
  double neighbours = 0, pairs = 0;
  for (std::size_t i = 0; i + 2 < x.size(); ++i) neighbours += x[i] * x[i + 1], pairs += x[i] * x[i + 2];
  EXPECT_NEAR(neighbours / 1e6, 0, 5e-3);
  EXPECT_NEAR(pairs / 1e6, 0, 5e-3);
}
TEST(Fill, MomentsOfTheUniformDistribution) {
  std::vector<double> x(1'000'000);
  fill_uniform(random_key(12, "moments"), 0, std::span(x), -2, 4);
  const Moments m = moments(x);
  EXPECT_NEAR(m.mean, 1, 5 * std::sqrt(3e-6));
  EXPECT_NEAR(m.variance, 3, 5 * std::sqrt(7.2e-6));
  EXPECT_GE(*std::min_element(x.begin(), x.end()), -2);
  EXPECT_LT(*std::max_element(x.begin(), x.end()), 4);
}

TEST(RandomKey, EveryPartMatters) {
  std::set<std::uint64_t> keys;
  int made = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const char* path : {"", "a", "b", "ab", "a.b", "layers.0", "layers.1", "layers.10"}) {
      keys.insert(random_key(seed, path).value);
      ++made;
      for (std::uint64_t step = 0; step < 20; ++step, ++made) keys.insert(random_key(seed, step, path).value);
    }
  EXPECT_EQ(keys.size(), static_cast<std::size_t>(made));
  EXPECT_EQ(random_key(1, 2, "p"), random_key(1, 2, path_hash("p")));
}

TEST(RandomStream, BelowIsUnbiasedAndInRange) {
  RandomStream random(random_key(5, "below"));
  std::vector<int> counts(7);
  for (int i = 0; i < 70'000; ++i) ++counts[random.below(7)];
  double chi = 0;
  for (const int c : counts) chi += (c - 10'000.0) * (c - 10'000.0) / 10'000.0;
  EXPECT_LT(chi, 27.9) << "six degrees of freedom, p = 1e-4";
  // Three quarters of 2^64: without rejection the lower third of results would be twice as frequent.
  const std::uint64_t n = std::uint64_t{3} << 62;
  int low = 0;
  for (int i = 0; i < 30'000; ++i) {
    const auto x = random.below(n);
    ASSERT_LT(x, n);
    low += x < n / 3;
  }
  EXPECT_NEAR(low, 10'000, 5 * 82);
  EXPECT_EQ(random.below(1), 0u);
  EXPECT_THROW(random.below(0), Error);
}

TEST(RandomStream, StreamsAndOrderAreReproducible) {
  RandomStream a(random_key(1, "s"), 1), b(random_key(1, "s"), 1), c(random_key(1, "s"), 2);
  int equal = 0;
  for (int i = 0; i < 100; ++i) {
    const auto x = a.bits();
    EXPECT_EQ(x, b.bits());
    equal += x == c.bits();
  }
  EXPECT_LT(equal, 3);
  std::vector<int> items{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, again = items;
  RandomStream s1(random_key(1, "shuffle")), s2(random_key(1, "shuffle"));
  s1.shuffle(std::span(items));
  s2.shuffle(std::span(again));
  EXPECT_EQ(items, again);
  EXPECT_FALSE(std::is_sorted(items.begin(), items.end()));
  EXPECT_TRUE(std::is_permutation(items.begin(), items.end(), std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}.begin()));
  double sum = 0, squares = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double x = s1.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.016);
  EXPECT_NEAR(squares / 1e5, 1, 0.023);
}

}  // namespace
}  // namespace chorus
