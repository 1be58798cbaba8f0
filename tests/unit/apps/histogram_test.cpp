#include <chorus/apps/findings.h>
#include <chorus/apps/histogram.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(Histogram, BarsAreInProportionAndNothingIsHidden) {
  EXPECT_EQ(histogram({{"é", 8}, {"ab", 4}, {"c", 0}, {"d", 1}}, 2),
            "   é        8 ██\n  ab        4 █\n   c        0 \n   d        1 ▎\n");
  EXPECT_EQ(histogram({{"a", 100000}, {"b", 1}}, 4), "  a   100000 ████\n  b        1 ▏\n") << "something that is there shows";
}

TEST(Histogram, DurationsFallIntoTheirClasses) {
  const std::vector<Bar> bars = duration_bars({0.3, 0.5, 0.99, 1, 2.5});
  ASSERT_EQ(bars.size(), 5u);
  EXPECT_EQ(bars[0].label, "under 0.5 s");
  EXPECT_EQ(bars[0].count, 1);
  EXPECT_EQ(bars[1].count, 2);
  EXPECT_EQ(bars[2].label, "under 1.5 s");
  EXPECT_EQ(bars[4].label, "under 3 s");
  EXPECT_EQ(duration_bars({4000}).back().label, "3600 s or more");
}

TEST(Findings, KindsStandTogetherAndAreCounted) {
  const std::vector<Finding> findings{
      {Severity::error, "bad", "m:1", "x"}, {Severity::warning, "odd", "m:2", "y"}, {Severity::error, "bad", "m:3", "z"}};
  EXPECT_EQ(findings_text(findings, 0), "\nerror: bad (2)\n  m:1: x\n  m:3: z\n\nwarning: odd (1)\n  m:2: y\n");
  EXPECT_THAT(findings_text(findings, 1), ::testing::HasSubstr("  m:1: x\n  and 1 more"));
}

}  // namespace
}  // namespace chorus
