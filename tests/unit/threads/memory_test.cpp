#include <chorus/core/error.h>
#include <chorus/core/memory.h>
#include <chorus/core/rng.h>
#include <gmock/gmock.h>

#include <cstring>
#include <map>
#include <thread>
#include <vector>

namespace chorus {
namespace {

using ::testing::HasSubstr;

struct Block {
  char* data;
  std::size_t bytes;
  Category category;
};

// A random history of allocations: every block is aligned, overlaps no other and keeps its bytes; the books balance.
void live_through(Memory& memory, std::uint64_t seed, int steps) {
  RandomStream random(random_key(seed, "memory"));
  std::vector<Block> blocks;
  std::map<char*, std::size_t> ranges;
  for (int step = 0; step < steps; ++step) {
    if (blocks.size() < 40 && random.below(5) < 3) {
      const std::size_t bytes = 1 + random.below(std::uint64_t{1} << (4 + random.below(18)));
      const auto category = static_cast<Category>(random.below(static_cast<std::uint64_t>(Category::disk)));
      auto* data = static_cast<char*>(memory.allocate(bytes, category));
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
      const auto after = ranges.lower_bound(data);
      if (after != ranges.end()) {
        ASSERT_LE(data + bytes, after->first) << "step " << step;
      }
      if (after != ranges.begin()) {
        ASSERT_LE(std::prev(after)->first + std::prev(after)->second, data) << "step " << step;
      }
      ranges[data] = bytes;
      data[0] = static_cast<char>(bytes);
      data[bytes - 1] = static_cast<char>(bytes);
      blocks.push_back({data, bytes, category});
    } else if (!blocks.empty()) {
      const std::size_t i = random.below(blocks.size());
      const Block b = blocks[i];
      ASSERT_EQ(b.data[0], static_cast<char>(b.bytes));
      ASSERT_EQ(b.data[b.bytes - 1], static_cast<char>(b.bytes));
      memory.free(b.data, b.bytes, b.category);
      ranges.erase(b.data);
      blocks[i] = blocks.back();
      blocks.pop_back();
    }
  }
  for (const Block& b : blocks) memory.free(b.data, b.bytes, b.category);
}

class MemoryKinds : public ::testing::TestWithParam<bool> {};

TEST_P(MemoryKinds, BlocksAreAlignedDistinctAndAccounted) {
  Memory memory({.pooled = GetParam()});
  live_through(memory, 1, 20000);
  const auto stats = memory.stats();
  EXPECT_EQ(stats.total, 0u);
  for (const auto bytes : stats.current) EXPECT_EQ(bytes, 0u);
  EXPECT_GT(stats.peak_total, 0u);
}

TEST(Memory, RegionsMayLieApart) {
  constexpr std::size_t gap = std::size_t{4} << 20;
  const MemorySource source{
      [](std::size_t bytes) -> void* { return static_cast<char*>(std::aligned_alloc(64, bytes + 2 * gap)) + gap; },
      [](void* region, std::size_t) noexcept { std::free(static_cast<char*>(region) - gap); }};
  Memory memory({.pooled = true, .source = source});
  std::vector<void*> held;  // several regions
  for (int i = 0; i < 5; ++i) held.push_back(memory.allocate(std::size_t{60} << 20, Category::parameters));
  live_through(memory, 1, 20000);
  EXPECT_GE(memory.stats().system_allocations, 3u);
  EXPECT_LE(memory.stats().touched, memory.stats().reserved);
  for (void* block : held) memory.free(block, std::size_t{60} << 20, Category::parameters);
  EXPECT_EQ(memory.stats().total, 0u);
}

TEST_P(MemoryKinds, ThreadsShareOnePool) {
  Memory memory({.pooled = GetParam()});
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) threads.emplace_back([&memory, t] { live_through(memory, t, 3000); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory.stats().total, 0u);
}

TEST_P(MemoryKinds, CategoriesKeepCurrentAndPeak) {
  Memory memory({.pooled = GetParam()});
  void* a = memory.allocate(1000, Category::parameters);
  void* b = memory.allocate(500, Category::activations);
  memory.free(b, 500, Category::activations);
  void* c = memory.allocate(200, Category::activations);
  auto stats = memory.stats();
  EXPECT_EQ(stats.current[static_cast<int>(Category::parameters)], 1000u);
  EXPECT_EQ(stats.current[static_cast<int>(Category::activations)], 200u);
  EXPECT_EQ(stats.peak[static_cast<int>(Category::activations)], 500u);
  EXPECT_EQ(stats.total, 1200u);
  EXPECT_EQ(stats.peak_total, 1500u);
  memory.reset_peak();
  EXPECT_EQ(memory.stats().peak_total, 1200u);
  memory.free(a, 1000, Category::parameters);
  memory.free(c, 200, Category::activations);
}

TEST_P(MemoryKinds, NoBytesGiveNull) {
  Memory memory({.pooled = GetParam()});
  EXPECT_EQ(memory.allocate(0, Category::workspace), nullptr);
  memory.free(nullptr, 0, Category::workspace);
  EXPECT_EQ(memory.stats().total, 0u);
}

TEST_P(MemoryKinds, TheLimitIsExactAndTheErrorReports) {
  Memory memory({.limit = 4096, .pooled = GetParam()});
  void* a = memory.allocate(3000, Category::parameters);
  void* b = memory.allocate(1096, Category::optimizer);
  try {
    memory.allocate(1, Category::gradients);
    FAIL() << "the limit was ignored";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("1 bytes of gradients"));
    EXPECT_THAT(e.what(), HasSubstr("4096"));
    EXPECT_THAT(e.what(), HasSubstr("parameters: 2.93 KiB"));
    EXPECT_THAT(e.what(), HasSubstr("optimizer: 1.07 KiB"));
  }
  memory.free(b, 1096, Category::optimizer);
  memory.free(memory.allocate(1, Category::gradients), 1, Category::gradients);
  memory.free(a, 3000, Category::parameters);
}

TEST_P(MemoryKinds, WhatLiesOnDiskIsCountedByItself) {
  Memory memory({.limit = 4096, .pooled = GetParam()});
  EXPECT_THAT(memory.report(), ::testing::Not(HasSubstr("disk")));
  memory.charge(10'000, Category::disk);
  void* a = memory.allocate(4000, Category::parameters);
  const auto stats = memory.stats();
  EXPECT_EQ(stats.current[static_cast<int>(Category::disk)], 10'000u);
  EXPECT_EQ(stats.total, 4000u);
  EXPECT_EQ(stats.peak_total, 4000u);
  EXPECT_THROW(memory.allocate(1, Category::disk), Error) << "it has no memory";
  memory.free(a, 4000, Category::parameters);
  memory.discharge(10'000, Category::disk);
  EXPECT_EQ(memory.stats().current[static_cast<int>(Category::disk)], 0u);
  EXPECT_EQ(memory.stats().total, 0u);
  EXPECT_THAT(memory.report(), HasSubstr("disk: 0 B, peak 9.77 KiB"));
}

INSTANTIATE_TEST_SUITE_P(All, MemoryKinds, ::testing::Bool(),
                         [](const auto& info) { return info.param ? std::string("pooled") : std::string("direct"); });

TEST(Memory, AnExhaustedMachineIsAnError) {
  Memory memory({.pooled = true});
  try {
    memory.allocate(std::size_t{1} << 60, Category::activations);
    FAIL() << "2^60 bytes were granted";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("no room for"));
    EXPECT_THAT(e.what(), HasSubstr("activations: 0 B"));
  }
  EXPECT_THROW(memory.allocate(~std::size_t{0}, Category::activations), Error);
  EXPECT_EQ(memory.stats().total, 0u);
}

TEST(Memory, FreedNeighboursMergeInAnyOrder) {
  for (const auto& order : {std::vector{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}}) {
    Memory memory({.pooled = true});
    constexpr std::size_t mib = std::size_t{1} << 20;
    std::vector<void*> blocks(3);
    for (auto& block : blocks) block = memory.allocate(20 * mib, Category::activations);
    for (const int i : order) memory.free(blocks[static_cast<std::size_t>(i)], 20 * mib, Category::activations);
    void* whole = memory.allocate(60 * mib, Category::activations);
    EXPECT_EQ(memory.stats().system_allocations, 1u);
    memory.free(whole, 60 * mib, Category::activations);
  }
}

TEST(Memory, ASmallBlockCacheGivesWayToALargeBlock) {
  Memory memory({.pooled = true});
  constexpr std::size_t small = 100'000, count = 600;
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < count; ++i) blocks.push_back(memory.allocate(small, Category::activations));
  ASSERT_EQ(memory.stats().system_allocations, 1u);
  for (void* block : blocks) memory.free(block, small, Category::activations);
  memory.free(memory.allocate(small * count, Category::activations), small * count, Category::activations);
  EXPECT_EQ(memory.stats().system_allocations, 1u);
}

/// Activations of layers, then their way back: each layer's go and its gradients come; in the end there is room for a block as
/// large as all activations less the gradients.
TEST(Memory, GradientsTakeThePlaceOfActivationsAndLeaveTheRestInOnePiece) {
  constexpr std::size_t mib = std::size_t{1} << 20, layers = 20, kept = 3 * mib, temporary = 2 * mib, gradient = mib,
                        tiny = 1000;
  Memory memory({.pooled = true});
  void* const state = memory.allocate(30 * mib, Category::parameters);
  const auto step = [&] {
    std::vector<std::pair<void*, void*>> activations;
    std::vector<void*> gradients;
    for (std::size_t l = 0; l < layers; ++l) {
      void* const before = memory.allocate(temporary, Category::workspace);
      activations.push_back({memory.allocate(kept, Category::activations), memory.allocate(tiny, Category::activations)});
      memory.free(before, temporary, Category::workspace);
    }
    const std::size_t most = memory.stats().touched;
    for (std::size_t l = layers; l-- > 0;) {
      void* const before = memory.allocate(temporary, Category::workspace);
      memory.free(activations[l].first, kept, Category::activations);
      memory.free(activations[l].second, tiny, Category::activations);
      gradients.push_back(memory.allocate(gradient, Category::gradients));
      memory.free(before, temporary, Category::workspace);
    }
    constexpr std::size_t rest = layers * (kept - gradient);
    memory.free(memory.allocate(rest, Category::workspace), rest, Category::workspace);
    for (void* block : gradients) memory.free(block, gradient, Category::gradients);
    EXPECT_LE(memory.stats().touched, most + temporary);
    EXPECT_LE(memory.stats().touched, 30 * mib + layers * kept + 2 * temporary + 4 * mib);  // the last: a slab of small blocks
  };
  for (int i = 0; i < 3; ++i) step();
  memory.free(state, 30 * mib, Category::parameters);
}

TEST(Memory, TheSteadyStateNeverAsksTheSystem) {
  Memory memory({.pooled = true});
  const auto step = [&memory] {
    std::vector<std::pair<void*, std::size_t>> blocks;
    for (std::size_t i = 1; i < 60; ++i) blocks.push_back({memory.allocate(i * i * 1024, Category::activations), i * i * 1024});
    for (const auto& [block, bytes] : blocks) memory.free(block, bytes, Category::activations);
  };
  step();
  const auto before = memory.stats().system_allocations;
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(memory.stats().system_allocations, before);
}

TEST(Memory, DirectBlocksGoBackToTheSystem) {
  Memory memory({.pooled = false});
  void* block = memory.allocate(1000, Category::activations);
  EXPECT_EQ(memory.stats().reserved, 1024u);
  memory.free(block, 1000, Category::activations);
  EXPECT_EQ(memory.stats().reserved, 0u);
}

TEST(Memory, ChargedBytesCountAgainstTheLimitButTakeNothing) {
  Memory memory({.limit = 1000});
  memory.charge(600, Category::parameters);
  EXPECT_EQ(memory.stats().total, 600u);
  EXPECT_EQ(memory.stats().reserved, 0u);
  EXPECT_THROW(memory.charge(401, Category::activations), Error);
  EXPECT_THROW((void)memory.allocate(401, Category::activations), Error);
  memory.charge(400, Category::activations);
  memory.discharge(400, Category::activations);
  memory.discharge(600, Category::parameters);
  EXPECT_EQ(memory.stats().total, 0u);
  EXPECT_EQ(memory.stats().peak_total, 1000u);
}

}  // namespace
}  // namespace chorus
