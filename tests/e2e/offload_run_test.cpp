// Runs whose optimizer state lies in files are the runs without, bit for bit, and go on with or without.
#include <chorus/apps/dry_run.h>
#include <chorus/parallel/group/threads.h>
#include <gmock/gmock.h>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;
using ::testing::ContainsRegex;
using ::testing::Not;

/// Two phases, of which the second keeps what the first has trained.
std::vector<std::string> two_phases(std::vector<std::string> more = {}) {
  for (const char* key : {"phases[0].steps=4", "phases[1].steps=5"}) more.push_back(key);
  return more;
}

std::string offloaded(const Folder& folder) { return "trainer.optimizer_offload_folder=" + (folder.path / "state").string(); }

std::size_t peak_of(const StepReport& step, Category category) {
  return step.memory_peak_of[static_cast<std::size_t>(category)];
}

class OffloadRun : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Precisions, OffloadRun, ::testing::Values("fp32", "bf16-mixed"),
                         [](const auto& info) { return info.param == std::string("fp32") ? "fp32" : "bf16"; });

TEST_P(OffloadRun, ChangesNothingButMemory) {
  const Folder folder(std::string("offload_") + GetParam());
  const auto corpus = write_corpus(folder.path);
  const std::string precision = std::string("trainer.precision=") + GetParam();
  Heard plain, heard;
  const auto expected = train(tiny(corpus, folder.path / "none", two_phases({precision})), plain.hooks());
  const auto result = train(tiny(corpus, folder.path / "run", two_phases({precision, offloaded(folder)})), heard.hooks());
  expect_same_steps(plain.steps, heard.steps);
  EXPECT_EQ(result.weight_hash, expected.weight_hash);
  ASSERT_EQ(heard.steps.size(), 9u);
  for (std::size_t i = 0; i < heard.steps.size(); ++i) {
    const std::size_t state = peak_of(plain.steps[i], Category::optimizer);
    EXPECT_GT(state, 0u);
    EXPECT_EQ(peak_of(heard.steps[i], Category::optimizer), 0u);
    EXPECT_EQ(peak_of(heard.steps[i], Category::disk), state);
    EXPECT_EQ(heard.steps[i].memory_step_peak + state, plain.steps[i].memory_step_peak);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path / "state"));
}

TEST_P(OffloadRun, GoesOnWithAndWithout) {
  const Folder folder(std::string("offload_resumed_") + GetParam());
  const auto corpus = write_corpus(folder.path);
  const std::string precision = std::string("trainer.precision=") + GetParam();
  Heard plain;
  const auto expected = train(tiny(corpus, folder.path / "none", two_phases({precision})), plain.hooks());
  std::vector<StepReport> steps;
  std::string hash;
  for (const bool offloads : {true, false, true}) {
    auto keys = two_phases({precision, "trainer.stop_after_steps=3"});
    if (offloads) keys.push_back(offloaded(folder));
    Heard heard;
    hash = train(tiny(corpus, folder.path / "run", keys), heard.hooks()).weight_hash;
    ASSERT_EQ(heard.steps.size(), 3u);
    steps.insert(steps.end(), heard.steps.begin(), heard.steps.end());
  }
  expect_same_steps(plain.steps, steps);
  EXPECT_EQ(hash, expected.weight_hash);
}

/// Three ranks share out the state, then two hold all of it and compare their hashes.
TEST(OffloadRanks, ChangesNothingButMemory) {
  const auto run = [](const RunConfig& config, int ranks) {
    std::string hash;
    run_ranks(ranks, {}, [&](Group& world) {
      const auto result = train(config, {}, world);
      if (world.rank() == 0) hash = result.weight_hash;
    });
    return hash;
  };
  for (const auto& [ranks, layout] : {std::pair(3, "parallel.sharding=full"), std::pair(3, "parallel.sharding=optimizer"),
                                      std::pair(2, "parallel.check_replicas_every_n_steps=2")}) {
    const Folder folder("offload_ranks");
    const auto corpus = write_corpus(folder.path);
    const auto config = [&](const char* name, std::vector<std::string> more) {
      more.insert(more.end(), {layout, "trainer.precision=bf16-mixed", "trainer.checkpoint_every_n_steps=3"});
      return tiny(corpus, folder.path / name, two_phases(std::move(more)));
    };
    const std::string expected = run(config("none", {}), ranks);
    run(config("run", {offloaded(folder), "trainer.stop_after_steps=6"}), ranks);
    EXPECT_EQ(run(config("run", {offloaded(folder)}), ranks), expected) << layout;
  }
}

TEST(OffloadDryRun, LeavesStateOutOfMemoryAndMakesNoFolder) {
  for (const char* layout : {"parallel.sharding=none", "parallel.sharding=full"}) {
    const Folder folder("offload_dry_run");
    const auto corpus = write_corpus(folder.path);
    const auto config = [&](std::vector<std::string> more) {
      more.insert(more.end(), {layout, "trainer.precision=bf16-mixed"});
      return tiny(corpus, folder.path / "run", two_phases(std::move(more)));
    };
    const DryRun plain = plan_run(config({}), {}, 2), plan = plan_run(config({offloaded(folder)}), {}, 2);
    EXPECT_FALSE(std::filesystem::exists(folder.path / "state"));
    EXPECT_THAT(memory_text(plain), Not(ContainsRegex("\n *disk ")));
    EXPECT_THAT(memory_text(plan), ContainsRegex("\n *disk "));
    EXPECT_THAT(memory_text(plan), Not(ContainsRegex("\n *optimizer ")));
    const auto measured = measure_run(config({offloaded(folder)}), 1000, {}, 2);
    EXPECT_FALSE(std::filesystem::exists(folder.path / "state"));
    for (std::size_t p = 0; p < measured.size(); ++p) {
      const auto of = [](const MemoryUse& use, Category category) { return use.of[static_cast<std::size_t>(category)]; };
      const double state = of(plain.phases[p].fixed, Category::optimizer);
      EXPECT_GT(state, 0);
      EXPECT_EQ(of(plan.phases[p].fixed, Category::disk), state);
      EXPECT_EQ(plan.phases[p].fixed.total + state, plain.phases[p].fixed.total);
      EXPECT_EQ(of(measured[p].use, Category::disk), state) << layout;
      EXPECT_EQ(of(measured[p].use, Category::optimizer), 0) << layout;
    }
  }
}

}  // namespace
}  // namespace chorus
