#include <chorus/core/error.h>
#include <chorus/core/rng.h>
#include <chorus/io/batches.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace chorus {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<Utterance> corpus(int n) {
  std::vector<Utterance> out;
  RandomStream random(random_key(1, "corpus"));
  for (int i = 0; i < n; ++i)
    out.push_back({0.2 + 6 * random.uniform() * random.uniform(), 1 + static_cast<std::int64_t>(random.below(40)), i % 3 == 0});
  return out;
}
std::int64_t frames(std::int64_t samples) { return samples / 80; }

BatchConfig demo() {
  BatchConfig c;
  c.batch_seconds = 10;
  c.speed_factors = {0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15};
  c.concat_probability = 0.5;
  return c;
}
BatchPlanner planner(const BatchConfig& config, int n = 300, std::uint64_t seed = 5) {
  return {config, corpus(n), seed, 8000, frames};
}

TEST(BatchPlanner, EveryUtteranceIsUsedOncePerEpoch) {
  const BatchPlanner plan = planner(demo());
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::multiset<std::int64_t> entries;
    std::set<std::int64_t> ids;
    const EpochPlan planned = plan.epoch(epoch);
    for (const GlobalBatch& batch : planned.batches)
      for (const Sample& sample : batch) {
        for (const Part& part : sample.parts) entries.insert(part.entry);
        EXPECT_TRUE(ids.insert(sample.id).second) << "sample id " << sample.id << " twice";
        EXPECT_EQ(sample.id, sample.parts[0].entry);
      }
    ASSERT_EQ(entries.size(), 300u);
    for (int i = 0; i < 300; ++i) ASSERT_EQ(entries.count(i), 1u) << "entry " << i << " epoch " << epoch;
  }
}

TEST(BatchPlanner, IsAFunctionOfSeedAndEpoch) {
  const BatchPlanner a = planner(demo()), b = planner(demo());
  b.epoch(7);
  EXPECT_EQ(a.epoch(3).batches, b.epoch(3).batches);
  EXPECT_NE(a.epoch(3).batches, a.epoch(4).batches);
  EXPECT_NE(a.epoch(3).batches, planner(demo(), 300, 6).epoch(3).batches);
}

TEST(BatchPlanner, LengthsAndConcatenationFollowTheRules) {
  const std::vector<Utterance> utterances = corpus(300);
  std::set<double> speeds;
  std::size_t appended = 0;
  for (const GlobalBatch& batch : planner(demo()).epoch(0).batches)
    for (const Sample& s : batch) {
      double seconds = 0;
      std::int64_t expected_frames = 0, tokens = -1;
      for (const Part& part : s.parts) {
        EXPECT_EQ(utterances[part.entry].language, utterances[s.id].language);
        EXPECT_LT(seconds, 10) << "nothing follows a sample of 10 s";
        speeds.insert(part.speed);
        seconds += utterances[part.entry].seconds / part.speed;
        expected_frames += frames(static_cast<std::int64_t>(std::llround(utterances[part.entry].seconds * 8000) / part.speed));
        tokens += 1 + utterances[part.entry].tokens;
      }
      EXPECT_DOUBLE_EQ(s.seconds, seconds);
      EXPECT_EQ(s.frames, expected_frames);
      EXPECT_EQ(s.tokens, tokens) << "texts are joined by a space";
      appended += s.parts.size() - 1;
    }
  EXPECT_EQ(speeds.size(), 7u);
  EXPECT_NEAR(static_cast<double>(appended) / 300, 0.5, 0.1);
}

TEST(BatchPlanner, BatchesKeepTheirBudgetAndHoldSimilarLengths) {
  auto check = [](const BatchConfig& config, auto weight, double budget, double least_fill) {
    const EpochPlan plan = planner(config).epoch(1);
    double total = 0;
    std::vector<std::pair<double, double>> ranges;  // of lengths
    for (const GlobalBatch& batch : plan.batches) {
      double sum = 0, low = 1e9, high = 0;
      for (const Sample& s : batch) {
        sum += weight(s);
        low = std::min(low, static_cast<double>(s.frames));
        high = std::max(high, static_cast<double>(s.frames));
      }
      EXPECT_TRUE(sum <= budget || batch.size() == 1) << sum << " of " << budget << " in " << batch.size();
      total += sum;
      ranges.emplace_back(low, high);
    }
    EXPECT_GT(total / static_cast<double>(plan.batches.size()), least_fill * budget);
    std::sort(ranges.begin(), ranges.end());
    for (std::size_t i = 1; i < ranges.size(); ++i)
      EXPECT_LE(ranges[i - 1].second, 1.1 * ranges[i].first) << "lengths overlap by more than the jitter of a tenth";
  };
  BatchConfig c = demo();
  check(
      c, [](const Sample& s) { return s.seconds; }, 10, 0.7);
  c.batch_seconds = 0, c.batch_frames = 1500;
  check(
      c, [](const Sample& s) { return static_cast<double>(s.frames); }, 1500, 0.7);
  c.batch_frames = 0, c.batch_tokens = 400;
  check(
      c, [](const Sample& s) { return static_cast<double>(s.tokens) + std::ceil(s.seconds / 0.08); }, 400, 0.7);
  c.batch_tokens = 0, c.global_batch_size = 7;
  check(
      c, [](const Sample&) { return 1.0; }, 7, 0.9);
}

TEST(BatchPlanner, WithoutShuffleBatchesGoByLength) {
  BatchConfig c;
  c.global_batch_size = 8;
  c.shuffle = false;
  const EpochPlan plan = planner(c).epoch(0);
  std::int64_t before = 0;
  for (const GlobalBatch& batch : plan.batches)
    for (const Sample& s : batch) {
      EXPECT_LE(before, s.frames);
      before = s.frames;
    }
  EXPECT_EQ(plan.batches, planner(c, 300, 99).epoch(4).batches) << "neither seed nor epoch matter";
}

TEST(BatchPlanner, UnusableUtterancesAreCountedByReason) {
  BatchConfig c;
  c.global_batch_size = 2;
  c.min_seconds = 0.3, c.max_seconds = 20, c.max_tokens_per_second = 25, c.min_frames = 50;
  c.speed_factors = {1, 1.25};
  const std::vector<Utterance> u = {{0.2, 3, 0}, {21, 3, 0}, {1, 0, 0}, {1, 26, 0}, {0.6, 5, 0}, {1, 25, 0}, {0.3, 1, 0}};
  const BatchPlanner plan(c, u, 1, 8000, frames);
  EXPECT_EQ(plan.drops(), (DropCounts{.too_short = 3, .too_long = 1, .empty_text = 1, .text_too_long = 1, .failed = 0}));
  EXPECT_EQ(plan.epoch(0).batches.size(), 1u);
  EXPECT_EQ(plan.drops().report(), "3 too short, 1 too long, 1 without text, 1 with too much text for their sound");
  EXPECT_THAT(
      [&] {
        BatchPlanner(c, {u[0], u[2]}, 1, 8000, frames);
      },
      ThrowsMessage<Error>(HasSubstr("none of 2 utterances can be used: 1 too short, 1 without text")));
}

TEST(BatchPlanner, WhatIsLeftOutIsShownWithItsLimit) {
  BatchConfig c;
  c.global_batch_size = 4, c.max_seconds = 5, c.max_unknown_fraction = 0.1;
  const auto known = [](std::int64_t tokens, std::int64_t unknown) {
    return Utterance{.seconds = 1, .tokens = tokens, .language = 0, .unknown = unknown};
  };
  std::vector<Utterance> u = {known(20, 2), known(20, 3), known(1, 1), known(5, 0)};
  u.resize(10, Utterance{.seconds = 6, .tokens = 3});
  const BatchPlanner plan(c, u, 1, 8000, frames);
  EXPECT_EQ(plan.drops().unknown_text, 2) << "2 of 20 are no more than a tenth";
  EXPECT_EQ(plan.drops().too_long, 6);
  EXPECT_EQ(plan.drops().total(), 8);
  ASSERT_EQ(plan.left_out().size(), 5u) << "three of a reason at most";
  EXPECT_EQ(plan.left_out()[0].entry, 1);
  EXPECT_EQ(plan.left_out()[0].why, "3 of its 20 pieces are unknown to the tokenizer, more than max_unknown_fraction = 0.1");
  EXPECT_EQ(plan.left_out()[4].why, "6 s are more than max_seconds = 5");
}

TEST(DropCounts, ReportTellsDroppedFromKept) {
  DropCounts d{.failed = 2, .bad_lines = 1, .without_ctc = 3};
  EXPECT_EQ(d.total(), 3) << "without CTC loss isn't dropped";
  EXPECT_EQ(d.report(),
            "1 with an unusable manifest line, 2 failed to load; 3 without CTC loss (too few frames for their text)");
  d += DropCounts{.duplicates = 1, .unreadable = 4};
  EXPECT_EQ(d.total(), 8);
  EXPECT_EQ(DropCounts{}.report(), "none");
}

TEST(BatchPlanner, ExactlyOneSizeMustBeGiven) {
  BatchConfig c;
  EXPECT_THAT([&] { planner(c); }, ThrowsMessage<Error>(HasSubstr("exactly one of global_batch_size (0)")));
  c.global_batch_size = 4, c.batch_frames = 100;
  EXPECT_THAT([&] { planner(c); }, ThrowsMessage<Error>(HasSubstr("batch_frames (100)")));
  c.batch_frames = 0, c.speed_factors = {1, -1};
  EXPECT_THAT([&] { planner(c); }, ThrowsMessage<Error>(HasSubstr("speed factor -1")));
}

TEST(Deal, EverySampleOnceAndTheWorkIsEven) {
  BatchConfig c = demo();
  c.batch_seconds = 100;
  for (const GlobalBatch& batch : planner(c).epoch(0).batches)
    for (const int dp : {1, 2, 3, 5})
      for (const int m : {1, 2, 4}) {
        std::multiset<int> seen;
        std::int64_t most = 0, total = 0, largest = 0;
        const auto dealt = deal(batch, dp, m);
        ASSERT_EQ(static_cast<int>(dealt.size()), dp);
        for (const auto& rank : dealt) {
          ASSERT_EQ(static_cast<int>(rank.size()), m);
          for (const auto& microbatch : rank) {
            std::int64_t work = 0;
            EXPECT_TRUE(std::is_sorted(microbatch.begin(), microbatch.end()));
            for (const int i : microbatch) {
              seen.insert(i);
              const std::int64_t w = batch[i].frames + 4 * batch[i].tokens;
              work += w;
              largest = std::max(largest, w);
            }
            most = std::max(most, work);
            total += work;
          }
        }
        ASSERT_EQ(seen.size(), batch.size());
        for (std::size_t i = 0; i < batch.size(); ++i) ASSERT_EQ(seen.count(static_cast<int>(i)), 1u);
        EXPECT_LE(most, total / (dp * m) + largest) << "dp " << dp << " m " << m;
      }
}

TEST(Deal, RanksFillBeforeMicrobatchesAndMayStayEmpty) {
  const GlobalBatch two = {{.id = 0, .parts = {}, .frames = 10}, {.id = 1, .parts = {}, .frames = 30}};
  using Dealt = std::vector<std::vector<std::vector<int>>>;
  EXPECT_EQ(deal(two, 3, 2), (Dealt{{{1}, {}}, {{0}, {}}, {{}, {}}}));
  EXPECT_EQ(deal({}, 2, 1), (Dealt{{{}}, {{}}}));
  const GlobalBatch five(5, {.id = 0, .parts = {}, .frames = 1});
  for (const auto& rank : deal(five, 1, 3, 2))
    for (const auto& microbatch : rank) EXPECT_LE(microbatch.size(), 2u);
  EXPECT_THAT([&] { deal(five, 1, 2, 2); },
              ThrowsMessage<Error>(HasSubstr("5 samples don't fit 1 ranks x 2 microbatches x 2")));
}

TEST(Deal, MicrobatchCounts) {
  const GlobalBatch five(5, {.id = 0, .parts = {}, .frames = 100});
  EXPECT_EQ(microbatch_count(five, 1, 0, 0), 1);
  EXPECT_EQ(microbatch_count(five, 1, 2, 0), 3);
  EXPECT_EQ(microbatch_count(five, 2, 2, 0), 2);
  EXPECT_EQ(microbatch_count(five, 2, 0, 100), 3);
  EXPECT_EQ(microbatch_count({}, 2, 1, 1), 1);
}

}  // namespace
}  // namespace chorus
