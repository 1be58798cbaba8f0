// Runs on several ranks are the runs of one: losses, norms, evaluations, checkpoints.
#include <chorus/apps/layout_plan.h>
#include <chorus/parallel/group/threads.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;
using ::testing::HasSubstr;

/// A large eps: where a gradient is zero but for rounding, AdamW would make steps of its noise.
std::vector<std::string> overrides(const std::string& precision, std::vector<std::string> more = {}) {
  more.push_back("optimizer.eps=1e-3");
  more.push_back("trainer.precision=" + precision);
  return more;
}

double worst(const std::vector<StepReport>& expected, const std::vector<StepReport>& actual) {
  double out = expected.size() == actual.size() && !expected.empty() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
    out = std::max(out, std::abs(actual[i].loss / expected[i].loss - 1));
    out = std::max(out, std::abs(actual[i].grad_norm / expected[i].grad_norm - 1));
    EXPECT_EQ(expected[i].samples, actual[i].samples);
    EXPECT_EQ(expected[i].labels, actual[i].labels);
    EXPECT_EQ(expected[i].frames, actual[i].frames);
  }
  return out;
}

struct Layout {
  const char* name;
  int ranks;
  std::vector<std::string> overrides;
};

class Ranks : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(
    Layouts, Ranks,
    ::testing::Values(Layout{"dp2", 2, {}}, Layout{"tp2", 2, {"parallel.tp_size=2"}},
                      Layout{"tp2_sp_dp3", 6, {"parallel.tp_size=2", "parallel.sequence_parallel=true"}},
                      Layout{"dp2_accumulation", 2, {"loader.micro_batch_size=2", "parallel.ddp.bucket_size=500"}},
                      Layout{"zero1", 3, {"parallel.sharding=optimizer", "loader.micro_batch_size=2"}},
                      Layout{"zero2", 2, {"parallel.sharding=gradients", "loader.micro_batch_size=2"}},
                      Layout{"fsdp", 3, {"parallel.sharding=full"}},
                      Layout{"hsdp_tp2_sp",
                             8,
                             {"parallel.sharding=full", "parallel.dp_replicate_size=2", "parallel.tp_size=2",
                              "parallel.sequence_parallel=true"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(Ranks, TrainAsOneDoes) {
  const Folder folder(std::string("ranks_") + GetParam().name);
  const auto corpus = write_corpus(folder.path);
  const std::vector<std::string> common =
      overrides("fp64", {"data.validation=" + corpus.string(), "trainer.val_check_interval=15"});
  auto many = common;
  many.insert(many.end(), GetParam().overrides.begin(), GetParam().overrides.end());
  Heard one, all;
  const RunConfig config = tiny(corpus, folder.path / "one", common), ranked = tiny(corpus, folder.path / "ranks", many);
  const TrainingResult expected = train(config, one.hooks()), result = train_on_threads(ranked, all.hooks(), GetParam().ranks);
  EXPECT_EQ(result.step, 30);
  EXPECT_EQ(expected.step, result.step);
  EXPECT_LT(worst(one.steps, all.steps), 1e-10);
  ASSERT_EQ(one.evaluations.size(), all.evaluations.size());
  for (std::size_t i = 0; i < one.evaluations.size(); ++i) {
    const Evaluation &a = one.evaluations[i], &b = all.evaluations[i];
    ASSERT_EQ(a.entries.size(), b.entries.size());
    for (std::size_t e = 0; e < a.entries.size(); ++e) {
      EXPECT_EQ(b.entries[e].problem, "");
      EXPECT_EQ(a.entries[e].text, b.entries[e].text);
      EXPECT_EQ(a.entries[e].ctc, b.entries[e].ctc);
    }
    EXPECT_EQ(a.labels, b.labels);
    EXPECT_NEAR(a.llm_loss, b.llm_loss, 1e-10);
    EXPECT_NEAR(a.ctc_loss, b.ctc_loss, 1e-10);
  }
  // Checkpoints hold whole tensors: those of one rank, whatever the ranks held.
  const auto saved = newest_tensors(config), saved_by_all = newest_tensors(ranked);
  ASSERT_EQ(saved.size(), saved_by_all.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(saved[i].first, saved_by_all[i].first);
    ASSERT_EQ(saved[i].second.size(), saved_by_all[i].second.size()) << saved[i].first;
    for (std::size_t k = 0; k < saved[i].second.size(); ++k)
      ASSERT_NEAR(saved[i].second[k], saved_by_all[i].second[k], 1e-9) << saved[i].first;
  }
}

TEST(RanksRun, GoesOnWithOtherRanks) {
  const Folder folder("ranks_resumed");
  const auto corpus = write_corpus(folder.path);
  Heard one, begun, ended;
  train(tiny(corpus, folder.path / "one", overrides("fp64")), one.hooks());
  const auto part = [&](std::vector<std::string> more) {
    return tiny(corpus, folder.path / "ranks", overrides("fp64", std::move(more)));
  };
  const auto paused = train_on_threads(part({"parallel.tp_size=2", "trainer.stop_after_steps=17"}), begun.hooks(), 2);
  EXPECT_EQ(paused.outcome, Outcome::paused);
  EXPECT_TRUE(begun.said("2 ranks: TP2"));
  EXPECT_EQ(begun.started.ranks, 2);
  EXPECT_EQ(begun.started.layout, "TP2");
  Heard between;
  EXPECT_EQ(train_on_threads(part({"parallel.sharding=full", "trainer.stop_after_steps=6"}), between.hooks(), 3).step, 23);
  EXPECT_TRUE(between.said("3 ranks: DP3 FSDP"));
  EXPECT_EQ(train_on_threads(part({"parallel.sharding=optimizer"}), ended.hooks(), 2).step, 30);
  EXPECT_TRUE(ended.said("2 ranks: DP2 ZeRO-1"));
  EXPECT_TRUE(ended.said("resumed from"));
  begun.steps.insert(begun.steps.end(), between.steps.begin(), between.steps.end());
  begun.steps.insert(begun.steps.end(), ended.steps.begin(), ended.steps.end());
  EXPECT_LT(worst(one.steps, begun.steps), 1e-10);
}

TEST(RanksRun, StaysCloseInF32) {
  const Folder folder("ranks_f32");
  const auto corpus = write_corpus(folder.path);
  Heard one, two;
  train(tiny(corpus, folder.path / "one", overrides("fp32")), one.hooks());
  train_on_threads(tiny(corpus, folder.path / "two", overrides("fp32")), two.hooks(), 2);
  EXPECT_LT(worst(one.steps, two.steps), 1e-4);
}

TEST(RanksRun, TakesFirstValuesFromARunOfOneRank) {
  const Folder folder("ranks_init_from");
  const auto corpus = write_corpus(folder.path);
  train(tiny(corpus, folder.path / "before", overrides("fp64", {"phases[0].steps=5", "phases[1].steps=5"})), {});
  const auto from = [&](const char* name, std::vector<std::string> more) {
    more.push_back("init_from=[{run = \"" + (folder.path / "before").string() + "\"}]");
    more.push_back("tokenizer_model=" + (folder.path / "before" / "tokenizer.model").string());
    more.push_back("trainer.stop_after_steps=4");
    return tiny(corpus, folder.path / name, overrides("fp64", std::move(more)));
  };
  Heard one, two;
  train(from("one", {}), one.hooks());
  train_on_threads(from("two", {"parallel.tensor_parallel_size=2"}), two.hooks(), 2);
  EXPECT_TRUE(two.said("2 ranks: TP2, 1 thread each"));
  EXPECT_LT(worst(one.steps, two.steps), 1e-10);
  for (const std::string sharding : {"gradients", "full"}) {
    Heard shared;
    train_on_threads(from(sharding.c_str(), {"parallel.sharding=" + sharding}), shared.hooks(), 2);
    EXPECT_LT(worst(one.steps, shared.steps), 1e-10) << sharding;
  }
}

TEST(RanksRun, EndsWhereRanksWereNotStartedAlike) {
  const Folder folder("ranks_unlike");
  const auto corpus = write_corpus(folder.path);
  const RunConfig config = tiny(corpus, folder.path / "run"),
                  other = tiny(corpus, folder.path / "run", {"optimizer.weight_decay=0.5"});
  ThreadOptions options;
  options.record_folder = folder.path / "record";
  try {
    run_ranks(2, options, [&](Group& world) { train(world.rank() ? other : config, {}, world); });
    ADD_FAILURE() << "two configurations";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the configuration of rank 1 differs from rank 0's"));
  }
  EXPECT_TRUE(std::filesystem::exists(folder.path / "record" / "rank-1.json"));
}

TEST(RanksRun, SaysOnceWhatAllRanksRead) {
  const Folder folder("ranks_said");
  const auto corpus = write_corpus(folder.path);
  std::ofstream(corpus, std::ios::app) << "nonsense\n";
  Heard heard;
  train_on_threads(tiny(corpus, folder.path / "run", {"data.validation=" + corpus.string(), "trainer.stop_after_steps=1"}),
                   heard.hooks(), 2);
  const auto said = std::count_if(heard.messages.begin(), heard.messages.end(),
                                  [](const auto& text) { return text.find("no JSON") != text.npos; });
  EXPECT_EQ(said, 2) << "of the training manifest and of the validation's";
}

TEST(RanksRun, SaysOnceThatARankHasNothingToDo) {
  const Folder folder("ranks_idle");
  const auto corpus = write_corpus(folder.path);
  const auto said = [&](const char* name, std::vector<std::string> more) {
    more.insert(more.end(), {"batches.concat_probability=0", "trainer.stop_after_steps=6"});
    Heard heard;
    train_on_threads(tiny(corpus, folder.path / name, more), heard.hooks(), 3);
    std::vector<std::string> out;
    for (const auto& text : heard.messages)
      if (text.find("had no sample") != text.npos) out.push_back(text);
    return out;
  };
  EXPECT_EQ(
      said("idle", {"batches.global_batch_size=2"}),
      std::vector<std::string>{
          "1 of 3 data-parallel ranks had no sample in a batch of 2 and had nothing to do but wait, which isn't said again; "
          "larger batches (batches.global_batch_size, now 2) or fewer ranks (parallel.dp_size) give each some"});
  const std::string own = "phases=[{name=\"own\", steps=30, batches={batch_frames=20, min_seconds=0.3}}]";
  const auto of_phase = said("phase", {own});
  ASSERT_EQ(of_phase.size(), 1u);
  EXPECT_THAT(of_phase[0], HasSubstr("(phases[0].batches.batch_frames, now 20)"));
  EXPECT_THAT(said("busy", {"batches.global_batch_size=3"}), ::testing::IsEmpty());
}

/// Ranks in folders of their own, as if on machines of their own. Folders belong to threads here, and to those that they start.
TrainingResult train_in_folders(const RunConfig& config, Heard& heard, const std::vector<std::filesystem::path>& folders) {
  TrainingResult result;
  TrainerHooks first = heard.hooks(), other;
  std::mutex mutex;
  first.message = other.message = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    heard.messages.push_back(text);
  };
  run_ranks(static_cast<int>(folders.size()), {}, [&](Group& world) {
    const auto& folder = folders[static_cast<std::size_t>(world.rank())];
    require(unshare(CLONE_FS) == 0 && chdir(folder.c_str()) == 0, "test", "no folder of its own: ", std::strerror(errno));
    const TrainingResult own = train(config, world.rank() == 0 ? first : other, world);
    if (world.rank() == 0) result = own;
  });
  return result;
}

TEST(RanksRun, LeavesOutOnAllRanksWhatOneCantRead) {
  const Folder folder("ranks_unreadable");
  const std::vector<std::string> common =
      overrides("fp64", {"trainer.stop_after_steps=8", "parallel.tp_size=2", "batches.concat_probability=0",
                         "features.normalize=per_feature", "data.validation=corpus.jsonl", "trainer.val_check_interval=4"});
  const auto relative = [&](const char* name) { return tiny("corpus.jsonl", folder.path / name, common); };
  std::vector<std::filesystem::path> folders;
  for (const char* name : {"a", "b", "c", "d"}) {
    folders.push_back(folder.path / name);
    std::filesystem::create_directories(folders.back());
    // Paths in a manifest are relative to it.
    write_corpus(folders.back());
    std::ofstream manifest(folders.back() / "corpus.jsonl");
    for (const std::string text : {"ab", "bc", "cd", "da", "abc", "bcd", "cda", "dab", "acbd", "bdac", "cadb", "dbca"})
      manifest << R"({"audio_filepath": ")" << text << R"(.wav", "text": ")" << text << R"(", "duration": )"
               << 0.16 * static_cast<double>(text.size()) << "}\n";
  }
  Heard all, one;
  // What no rank can read, against what only the second of two can't: ranks 1 and 3 have other tensor-parallel parts than 0
  // and 2.
  std::filesystem::remove(folders[1] / "bcd.wav");
  std::filesystem::remove(folders[3] / "bcd.wav");
  const auto some = train_in_folders(relative("some"), one, folders);
  std::filesystem::remove(folders[0] / "bcd.wav");
  std::filesystem::remove(folders[2] / "bcd.wav");
  const auto none = train_in_folders(relative("none"), all, folders);
  EXPECT_EQ(some.step, 8);
  EXPECT_GT(some.drops.failed, 1);
  EXPECT_EQ(some.drops.failed, none.drops.failed);
  expect_same_steps(all.steps, one.steps);
  EXPECT_EQ(some.weight_hash, none.weight_hash);
  ASSERT_EQ(one.evaluations.size(), 2u);
  ASSERT_EQ(all.evaluations.size(), 2u);
  for (const auto* heard : {&one, &all}) EXPECT_EQ(heard->evaluations[0].failed, 1);
  EXPECT_EQ(one.evaluations[1].llm_loss, all.evaluations[1].llm_loss);
  const auto told = [](const Heard& heard, const std::string& part) {
    return std::ranges::count_if(heard.messages, [&](const auto& text) {
      return text.find("dropped a sample: ") != text.npos && text.find("bcd.wav") != text.npos &&
             (text.find("it failed on 1 of 2 ranks that have this sample, and all leave it out") != text.npos) ==
                 !part.empty() &&
             text.starts_with(part);
    });
  };
  EXPECT_GT(told(one, "rank 1: ") + told(one, "rank 3: "), 0);
  EXPECT_EQ(told(one, ""), 0);
  EXPECT_GT(told(all, ""), 0);
}

TEST(RanksRun, ReportsTheMostMemoryOfAnyRank) {
  const Folder folder("ranks_memory");
  const auto corpus = write_corpus(folder.path);
  // Of five columns the first rank has two, the second three.
  const RunConfig config =
      tiny(corpus, folder.path / "run", {"parallel.tp_size=2", "model.llm.intermediate_size=5", "trainer.stop_after_steps=1"});
  const auto of_place = plan_layout(config, 2, {}).totals[0].of_place;
  const double held = of_place[1][0].state.held.values;
  ASSERT_GT(held, of_place[0][0].state.held.values);
  Heard heard;
  train_on_threads(config, heard.hooks(), 2);
  const StepReport& step = heard.steps.at(0);
  constexpr auto parameters = static_cast<std::size_t>(Category::parameters);
  EXPECT_EQ(static_cast<double>(step.memory_of[parameters]), held);
  EXPECT_EQ(static_cast<double>(step.memory_peak_of[parameters]), held);
}

TEST(RanksRun, StopsTogether) {
  const Folder folder("ranks_stopped");
  const auto corpus = write_corpus(folder.path);
  Heard heard;
  heard.stop_at = 6;
  const auto result = train_on_threads(tiny(corpus, folder.path / "run"), heard.hooks(), 2);
  EXPECT_EQ(result.outcome, Outcome::stopped);
  EXPECT_EQ(result.step, 6);
}

TEST(RanksRun, RefusesSizesThatDontFit) {
  const Folder folder("ranks_refused");
  const auto corpus = write_corpus(folder.path);
  const auto refusal = [&](int ranks, std::vector<std::string> more) -> std::string {
    try {
      train_on_threads(tiny(corpus, folder.path / "run", std::move(more)), {}, ranks);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(3, {"parallel.tp_size=2"}), HasSubstr("3 ranks are no multiple of tp_size * cp_size * pp_size"));
  EXPECT_THAT(refusal(4, {"parallel.dp_size=2"}), HasSubstr("dp_size is 2, but 4 ranks"));
  EXPECT_THAT(refusal(4, {"parallel.tensor_parallel_size=2", "parallel.data_parallel_size=3"}),
              HasSubstr("dp_size is 3, but 4 ranks"));
  EXPECT_THAT(refusal(3, {"parallel.tp_size=3"}), HasSubstr("heads 2 don't divide over tp_size 3"));
  EXPECT_FALSE(std::filesystem::exists(folder.path / "run" / "checkpoints"));
}

}  // namespace
}  // namespace chorus
