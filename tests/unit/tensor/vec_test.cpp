#include <chorus/tensor/kernels/random_bits.h>
#include <chorus/tensor/kernels/vec.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace chorus::kernel {
namespace {

template <class C>
C exp_of(C x) {
  return exp<C>(all(x))[0];
}

/// Largest relative error of exp over evenly spaced points; the argument where it is goes to `at`.
template <class C>
double worst_error(double low, double high, double& at) {
  double worst = 0;
  for (int i = 0; i <= 200000; ++i) {
    const C x = static_cast<C>(low + (high - low) * i / 200000);
    const long double want = std::exp(static_cast<long double>(x));
    const double error = static_cast<double>(std::abs((exp_of<C>(x) - want) / want));
    if (!(error <= worst)) {
      worst = error;
      at = static_cast<double>(x);
    }
  }
  return worst;
}

TEST(Vec, ExpIsAccurateOverItsRange) {
  double at = 0;
  EXPECT_LE(worst_error<float>(-86, 88.7, at), 2e-7) << "at " << at;
  EXPECT_LE(worst_error<float>(-1, 1, at), 1e-7) << "at " << at;
  EXPECT_LE(worst_error<double>(-700, 709, at), 4e-16) << "at " << at;
  EXPECT_LE(worst_error<double>(-1, 1, at), 3e-16) << "at " << at;
}

/// Largest error of log, relative to the larger of its value and `floor`, over numbers that are evenly spaced in their
/// logarithm.
template <class C>
double worst_log_error(double low, double high, double floor, double& at) {
  double worst = 0;
  for (int i = 0; i <= 200000; ++i) {
    const C x = static_cast<C>(std::exp(low + (high - low) * i / 200000));
    const long double want = std::log(static_cast<long double>(x));
    const long double error = std::abs(log<C>(all(x))[0] - want) / std::max(std::abs(want), static_cast<long double>(floor));
    if (!(static_cast<double>(error) <= worst)) worst = static_cast<double>(error), at = static_cast<double>(x);
  }
  return worst;
}

TEST(Vec, LogIsAccurateOverItsRange) {
  double at = 0;
  EXPECT_LE(worst_log_error<float>(-87, 88, 1e-3, at), 2e-7) << "at " << at;
  EXPECT_LE(worst_log_error<float>(-0.5, 0.5, 1e-3, at), 2e-7) << "at " << at;
  EXPECT_LE(worst_log_error<double>(-708, 709, 1e-3, at), 4e-16) << "at " << at;
  EXPECT_LE(worst_log_error<double>(-0.5, 0.5, 1e-3, at), 4e-16) << "at " << at;
}

template <class C>
void check_special_values() {
  constexpr C infinity = std::numeric_limits<C>::infinity();
  EXPECT_EQ(exp_of<C>(0), 1);
  EXPECT_EQ(exp_of<C>(-infinity), 0);
  EXPECT_EQ(exp_of<C>(infinity), infinity);
  EXPECT_EQ(exp_of<C>(std::numeric_limits<C>::max()), infinity);
  EXPECT_EQ(exp_of<C>(std::numeric_limits<C>::lowest()), 0);
  EXPECT_TRUE(std::isnan(exp_of<C>(std::numeric_limits<C>::quiet_NaN())));
  EXPECT_EQ(log<C>(all(C(1)))[0], 0);
  EXPECT_EQ(log<C>(all(C(0)))[0], -infinity);
  EXPECT_EQ(log<C>(all(infinity))[0], infinity);
  EXPECT_TRUE(std::isnan(log<C>(all(C(-1)))[0]));
  EXPECT_TRUE(std::isnan(log<C>(all(-infinity))[0]));
  EXPECT_TRUE(std::isnan(log<C>(all(std::numeric_limits<C>::quiet_NaN()))[0]));
  EXPECT_EQ(sigmoid<C>(all(-infinity))[0], 0);
  EXPECT_EQ(sigmoid<C>(all(infinity))[0], 1);
  const SigmoidPair<C> far(all(C(50)));
  EXPECT_EQ(far.s[0], 1);
  EXPECT_NEAR(static_cast<double>(far.rest[0]) / std::exp(-50.0), 1, 1e-6) << "1 - sigmoid(50) must not cancel to 0";
}

TEST(Vec, SpecialValuesOfExpLogAndSigmoid) {
  check_special_values<float>();
  check_special_values<double>();
}

/// Converts `count` values on vectors and element by element.
template <class From, class To>
void check_map(int count) {
  using C = compute_type<To>;
  std::vector<From> x;
  for (int i = 0; i < count; ++i) x.push_back(static_cast<From>(static_cast<double>(i * i - 31 * i) / 7.0));
  std::vector<To> y(x.size() + 64, static_cast<To>(-5.0));
  map<C>(
      count, [](Vec<C> v) { return v; }, y.data(), x.data());
  for (int i = 0; i < count; ++i) {
    const auto want = static_cast<double>(static_cast<To>(static_cast<C>(x[static_cast<std::size_t>(i)])));
    ASSERT_EQ(static_cast<double>(y[static_cast<std::size_t>(i)]), want) << "element " << i << " of " << count;
  }
  for (std::size_t i = x.size(); i < y.size(); ++i)
    ASSERT_EQ(static_cast<double>(y[i]), -5) << "wrote " << i - x.size() << " past the end";
}

TEST(Vec, LoadsConvertAndStoresRoundLikeScalarsAndStayInside) {
  for (const int count : {0, 1, 3, 7, 8, 15, 16, 17, 31, 32, 33, 65, 130}) {
    check_map<float, float>(count);
    check_map<float, bf16>(count);
    check_map<bf16, float>(count);
    check_map<bf16, bf16>(count);
    check_map<double, double>(count);
    check_map<double, float>(count);
    check_map<double, bf16>(count);
    check_map<float, double>(count);
    check_map<bf16, double>(count);
  }
}

TEST(Vec, SumsAndMaximaOfAllLanes) {
  Vec<float> v{};
  for (int i = 0; i < lanes<float>; ++i) v[i] = static_cast<float>(i == 2 ? 100 : -i);
  EXPECT_EQ(sum<float>(v), 102 - static_cast<float>(lanes<float> * (lanes<float> - 1) / 2));
  EXPECT_EQ(maximum_of<float>(v), 100);
  EXPECT_EQ(sum<float>(keep<float>(v, First{2})), -1);
}

TEST(Vec, RandomDrawsAreThoseOfSingleBlocks) {
  const RandomKey key{0x123456789abcdef0u};
  const RandomCounter start{0xffffffffu, 3, 0x80000000u, 5};
  constexpr std::int64_t blocks = 21, room = blocks + random_blocks;
  std::vector<std::uint16_t> last(room * draws_per_block), third(room * draws_per_block);
  random_draws(key, start, 3, blocks, last.data());
  random_draws(key, start, 2, blocks, third.data());
  for (std::uint32_t b = 0; b < blocks; ++b)
    for (std::uint32_t j = 0; j < 8; ++j) {
      const auto draw = [&](RandomCounter counter) { return philox(key, counter)[j / 2] >> (j % 2 * 16) & 0xffffu; };
      ASSERT_EQ(last[b * 8 + j], draw({start[0], start[1], start[2], start[3] + b})) << "block " << b << " draw " << j;
      ASSERT_EQ(third[b * 8 + j], draw({start[0], start[1], start[2] + b, start[3]})) << "block " << b << " draw " << j;
    }
}

TEST(Vec, RandomWordsAreThoseOfSingleBlocks) {
  const RandomKey key{0xfedcba9876543210u};
  const RandomCounter start{7, 0xfffffff8u, 9, 0x12345678u};
  for (int word = 0; word < 4; ++word) {
    std::uint32_t words[4][random_blocks];
    random_words(key, start, word, words);
    for (std::uint32_t i = 0; i < random_blocks; ++i) {
      RandomCounter counter = start;
      counter[static_cast<std::size_t>(word)] += i;  // wraps around
      for (std::size_t w = 0; w < 4; ++w) ASSERT_EQ(words[w][i], philox(key, counter)[w]) << word << ' ' << i << ' ' << w;
    }
  }
}

}  // namespace
}  // namespace chorus::kernel
