#include <chorus/core/error.h>
#include <chorus/io/augment.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace chorus {
namespace {

constexpr int mels = 80;

std::vector<float> masked(int frames, const SpecAugmentConfig& config, std::uint64_t seed, std::uint64_t epoch,
                          std::int64_t id) {
  std::vector<float> x(static_cast<std::size_t>(frames) * mels, 1.f);
  spec_augment(x, mels, config, seed, epoch, id);
  return x;
}

/// Lengths of the runs of fully masked rows and columns.
struct Masks {
  int rows = 0, longest_rows = 0, columns = 0, longest_columns = 0;
};
Masks masks_of(const std::vector<float>& x) {
  const int frames = static_cast<int>(x.size()) / mels;
  Masks m;
  int run = 0;
  for (int t = 0; t < frames; ++t) {
    bool all = true;
    for (int k = 0; k < mels; ++k) all &= x[t * mels + k] == 0;
    run = all ? run + 1 : 0;
    m.rows += all;
    m.longest_rows = std::max(m.longest_rows, run);
  }
  run = 0;
  for (int k = 0; k < mels; ++k) {
    bool all = true;
    for (int t = 0; t < frames; ++t) all &= x[t * mels + k] == 0;
    run = all ? run + 1 : 0;
    m.columns += all;
    m.longest_columns = std::max(m.longest_columns, run);
  }
  return m;
}

TEST(SpecAugment, OneMaskHasEveryWidthUpToItsLimitsAboutEquallyOften) {
  std::map<int, int> columns, rows;
  for (int id = 0; id < 4000; ++id) {
    ++columns[masks_of(masked(50, {1, 15, 0, 0, 15, 0.2}, 7, 0, id)).longest_columns];
    ++rows[masks_of(masked(50, {0, 15, 1, 0, 15, 0.2}, 7, 0, id)).longest_rows];
  }
  EXPECT_EQ(columns.size(), 16u);
  EXPECT_EQ(columns.rbegin()->first, 15);
  EXPECT_EQ(rows.size(), 11u) << "a fifth of 50 frames";
  EXPECT_EQ(rows.rbegin()->first, 10);
  for (const auto& [width, count] : columns) EXPECT_NEAR(count, 250, 75) << "width " << width;
  for (const auto& [width, count] : rows) EXPECT_NEAR(count, 364, 90) << "width " << width;
}

TEST(SpecAugment, TimeMasksCanGrowWithTheLength) {
  const SpecAugmentConfig every{0, 0, 99, 120, 1000, 0.001};  // masks of at most one frame in 1,000
  int most = 0;
  for (int id = 0; id < 200; ++id) most = std::max(most, masks_of(masked(2400, every, 1, 0, id)).rows);
  EXPECT_LE(most, 20 * 2);
  EXPECT_GT(most, 20);
  EXPECT_EQ(masks_of(masked(2400, {0, 0, 0, 0, 1000, 1}, 1, 0, 0)).rows, 0);
}

TEST(SpecAugment, MasksReachTheBordersAndStayInside) {
  int first = 0, last = 0;
  for (int id = 0; id < 300; ++id) {
    const std::vector<float> x = masked(20, {1, 200, 1, 0, 1000, 1}, 3, 1, id);
    first += x.front() == 0;
    last += x.back() == 0;
    ASSERT_EQ(x.size(), 20u * mels);
  }
  EXPECT_GT(first, 20);
  EXPECT_GT(last, 20);
  std::vector<float> none;
  spec_augment(none, mels, {}, 1, 2, 3);
  EXPECT_THAT(
      [] {
        std::vector<float> odd(81);
        spec_augment(odd, mels, {}, 1, 2, 3);
      },
      ::testing::ThrowsMessage<Error>(::testing::HasSubstr("81 values are no rows of 80 mels")));
}

TEST(SpecAugment, DependsOnSeedEpochAndSampleOnly) {
  const SpecAugmentConfig config;
  const std::vector<float> x = masked(300, config, 1, 2, 3);
  masked(100, config, 1, 2, 4);
  EXPECT_EQ(x, masked(300, config, 1, 2, 3));
  EXPECT_NE(x, masked(300, config, 2, 2, 3));
  EXPECT_NE(x, masked(300, config, 1, 3, 3));
  EXPECT_NE(x, masked(300, config, 1, 2, 4));
}

}  // namespace
}  // namespace chorus
