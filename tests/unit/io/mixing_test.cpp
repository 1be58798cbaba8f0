#include <chorus/core/error.h>
#include <chorus/core/rng.h>
#include <chorus/io/mixing.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

namespace chorus {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Sources of the given sizes with entries 0, 1, 2 ... in all.
std::vector<std::vector<std::int64_t>> sources(std::initializer_list<int> sizes) {
  std::vector<std::vector<std::int64_t>> out;
  std::int64_t next = 0;
  for (const int size : sizes) {
    out.emplace_back(size);
    std::iota(out.back().begin(), out.back().end(), next);
    next += size;
  }
  return out;
}

TEST(Apportion, LargestRemainders) {
  const auto parts = [](std::int64_t total, std::vector<double> weights) { return apportion(total, weights); };
  EXPECT_EQ(parts(10, {1}), (std::vector<std::int64_t>{10}));
  EXPECT_EQ(parts(10, {1, 1, 1}), (std::vector<std::int64_t>{4, 3, 3}));
  EXPECT_EQ(parts(100, {47, 16, 15.8, 12, 6.1, 3.1}), (std::vector<std::int64_t>{47, 16, 16, 12, 6, 3}));
  EXPECT_EQ(parts(7, {0.1, 0.2, 0.4}), (std::vector<std::int64_t>{1, 2, 4}));
  EXPECT_EQ(parts(0, {2, 1}), (std::vector<std::int64_t>{0, 0}));
}

TEST(Mixer, SharesFollowWeightsAndTemperature) {
  const auto shares = [](std::vector<double> weights, double temperature) {
    return Mixer({weights, temperature}, sources({900, 90, 10}), 1, true).shares();
  };
  EXPECT_EQ(shares({900, 90, 10}, 1), (std::vector<std::int64_t>{900, 90, 10})) << "by size: every utterance once";
  EXPECT_EQ(shares({900, 90, 10}, 0), (std::vector<std::int64_t>{334, 333, 333})) << "all alike";
  EXPECT_EQ(shares({900, 90, 10}, 0.5), apportion(1000, std::vector<double>{std::sqrt(900), std::sqrt(90), std::sqrt(10)}));
  EXPECT_EQ(shares({3, 1, 1}, 1), (std::vector<std::int64_t>{600, 200, 200}));
  EXPECT_EQ(shares({3e-300, 1e-300, 1e-300}, 1), shares({3e300, 1e300, 1e300}, 1)) << "only ratios matter";
}

TEST(Mixer, EveryEpochHasItsSharesAndNothingIsHeardTwiceBeforeAllIsHeardOnce) {
  const auto entries = sources({13, 50, 7});
  const Mixer mixer({{2, 1, 3}, 1}, entries, 5, true);
  EXPECT_EQ(mixer.shares(), (std::vector<std::int64_t>{23, 12, 35}));
  std::vector<std::int64_t> heard(70);
  for (int epoch = 0; epoch < 12; ++epoch) {
    std::map<int, std::int64_t> of_source;
    std::set<std::pair<std::int64_t, std::int64_t>> unique;
    for (const Draw& d : mixer.epoch(epoch)) {
      const int s = d.entry < 13 ? 0 : d.entry < 63 ? 1 : 2;
      ++of_source[s];
      ++heard[d.entry];
      EXPECT_TRUE(unique.emplace(d.entry, d.repeat).second) << "entry " << d.entry << " repeat " << d.repeat << " twice";
      EXPECT_TRUE(d.repeat == 0 || unique.contains({d.entry, d.repeat - 1})) << "repeats are numbered in order";
      for (const std::int64_t other : entries[s])
        ASSERT_LE(heard[d.entry], heard[other] + 1) << "source " << s << " epoch " << epoch;
    }
    for (int s = 0; s < 3; ++s) EXPECT_EQ(of_source[s], mixer.shares()[s]) << "epoch " << epoch;
  }
}

TEST(Mixer, IsAFunctionOfSeedAndEpoch) {
  const auto mixer = [](std::uint64_t seed) { return Mixer({{1, 2}, 1}, sources({40, 20}), seed, true); };
  const Mixer a = mixer(3), b = mixer(3);
  b.epoch(0), b.epoch(9);
  EXPECT_EQ(a.epoch(7), b.epoch(7));
  EXPECT_NE(a.epoch(7), a.epoch(8));
  EXPECT_NE(a.epoch(7), mixer(4).epoch(7));
}

/// The order that runs with one manifest have had since before there were mixtures.
TEST(Mixer, OneSourceAloneIsShuffledByEpoch) {
  for (const double temperature : {1.0, 0.0})
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::vector<std::int64_t> order = sources({50})[0];
      RandomStream(random_key(9, epoch, "shuffle")).shuffle(std::span(order));
      std::vector<Draw> expected;
      for (const std::int64_t entry : order) expected.push_back({entry, 0});
      EXPECT_EQ(Mixer({{0.7}, temperature}, sources({50}), 9, true).epoch(epoch), expected) << "epoch " << epoch;
    }
}

TEST(Mixer, SourcesAreSpreadEvenlyOverTheEpoch) {
  const std::vector<Draw> draws = Mixer({{1, 3}, 1}, sources({100, 300}), 3, true).epoch(0);
  for (std::size_t part = 0; part < 4; ++part) {
    const auto first = draws.begin() + static_cast<std::ptrdiff_t>(100 * part);
    EXPECT_NEAR(static_cast<double>(std::count_if(first, first + 100, [](const Draw& d) { return d.entry < 100; })), 25, 1);
  }
}

TEST(Mixer, WhatCannotBeDrawnIsRefused) {
  const auto make = [](std::vector<double> weights, std::initializer_list<int> sizes, double temperature = 1) {
    return [=, s = sources(sizes)] { Mixer({weights, temperature}, s, 1, true); };
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  EXPECT_THAT(make({1, 0}, {3, 3}), ThrowsMessage<Error>(HasSubstr("weight 0 of source 1 must be positive and finite")));
  EXPECT_THAT(make({1, -2}, {3, 3}), ThrowsMessage<Error>(HasSubstr("weight -2 of source 1")));
  EXPECT_THAT(make({nan, 1}, {3, 3}), ThrowsMessage<Error>(HasSubstr("of source 0 must be positive")));
  EXPECT_THAT(make({1, inf}, {3, 3}), ThrowsMessage<Error>(HasSubstr("weight inf of source 1")));
  EXPECT_THAT(make({1, 1}, {3, 0}), ThrowsMessage<Error>(HasSubstr("source 1 has no utterance that can be used")));
  EXPECT_THAT(make({1000, 1}, {5, 5}),
              ThrowsMessage<Error>(HasSubstr("source 1 with weight 1 would never be heard: its share of the 10 draws")));
  EXPECT_THAT(make({1, 1}, {3, 3}, -1), ThrowsMessage<Error>(HasSubstr("temperature -1")));
  EXPECT_THAT(make({1}, {3, 3}), ThrowsMessage<Error>(HasSubstr("1 weights for 2 sources")));
}

}  // namespace
}  // namespace chorus
