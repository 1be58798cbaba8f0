// Ranks that have the same samples leave out the same.
#include <chorus/apps/agreement.h>
#include <chorus/parallel/group/threads.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

/// Two microbatches of three samples of 1, 2, ... frames of two values each, of which some failed to load.
LoadedBatch batch_without(const std::vector<std::int64_t>& failed, const std::string& where) {
  LoadedBatch batch{.cursor = {}, .next = {}, .microbatches = {}, .counts = {}, .drops = {}, .failures = {}, .failed = failed};
  for (std::int64_t number = 0; number < 6; ++number) {
    if (number % 3 == 0) batch.microbatches.emplace_back().mels = 2;
    if (std::ranges::find(failed, number) != failed.end()) {
      batch.failures.push_back(std::to_string(number) + " on " + where);
      ++batch.drops.failed;
      continue;
    }
    Microbatch& micro = batch.microbatches.back();
    const std::int64_t frames = number + 1;
    micro.features.insert(micro.features.end(), static_cast<std::size_t>(2 * frames), static_cast<float>(number));
    micro.frames += frames;
    micro.ids.push_back(40);  // an entry may be drawn again: ids don't tell samples apart
    micro.frames_of.push_back(frames);
    micro.numbers.push_back(number);
    micro.tokens.push_back(std::vector<int>(static_cast<std::size_t>(number), 7));
    micro.texts.push_back(std::to_string(number));
    batch.counts.samples += 1;
    batch.counts.frames += frames;
    batch.counts.tokens += number;
  }
  return batch;
}

void expect_same(const LoadedBatch& a, const LoadedBatch& b) {
  EXPECT_EQ(a.counts.samples, b.counts.samples);
  EXPECT_EQ(a.counts.frames, b.counts.frames);
  EXPECT_EQ(a.counts.tokens, b.counts.tokens);
  EXPECT_EQ(a.drops, b.drops);
  ASSERT_EQ(a.microbatches.size(), b.microbatches.size());
  for (std::size_t m = 0; m < a.microbatches.size(); ++m) {
    const Microbatch &x = a.microbatches[m], &y = b.microbatches[m];
    EXPECT_EQ(x.mels, y.mels);
    EXPECT_EQ(x.frames, y.frames);
    EXPECT_EQ(x.features, y.features);
    EXPECT_EQ(x.ids, y.ids);
    EXPECT_EQ(x.frames_of, y.frames_of);
    EXPECT_EQ(x.numbers, y.numbers);
    EXPECT_EQ(x.tokens, y.tokens);
    EXPECT_EQ(x.texts, y.texts);
  }
}

TEST(AgreeOnFailures, EachLeavesOutWhatFailedOnAny) {
  const std::vector<std::vector<std::int64_t>> failed{{1, 5}, {}, {0, 5}};
  std::vector<std::vector<std::string>> told(3);
  run_ranks(3, {}, [&](Group& peers) {
    const auto r = static_cast<std::size_t>(peers.rank());
    LoadedBatch batch = batch_without(failed[r], "rank " + std::to_string(r));
    told[r] = agree_on_failures(batch, peers);
    expect_same(batch, batch_without({0, 1, 5}, ""));
  });
  const std::string of = " of 3 ranks that have this sample, and all leave it out";
  EXPECT_EQ(told[0], (std::vector<std::string>{"1 on rank 0; it failed on 1" + of, "5 on rank 0; it failed on 2" + of}));
  EXPECT_TRUE(told[1].empty());
  EXPECT_EQ(told[2], (std::vector<std::string>{"0 on rank 2; it failed on 1" + of}));
}

TEST(AgreeOnFailures, ChangesNothingWhereAllAgree) {
  for (const std::vector<std::int64_t>& failed : {std::vector<std::int64_t>{}, {2, 3}}) {
    std::vector<std::vector<std::string>> told(2);
    run_ranks(2, {}, [&](Group& peers) {
      LoadedBatch batch = batch_without(failed, "all");
      told[static_cast<std::size_t>(peers.rank())] = agree_on_failures(batch, peers);
      expect_same(batch, batch_without(failed, ""));
    });
    EXPECT_EQ(told[0].size(), failed.size()) << "said once, as on one rank";
    EXPECT_TRUE(told[1].empty());
  }
}

}  // namespace
}  // namespace chorus
