// A step whose gradient or loss isn't finite changes nothing: it ends the run, or is skipped as often as the configuration
// says.
#include <chorus/parallel/group/threads.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <mutex>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;
using ::testing::HasSubstr;

/// The corpus and one recording more, the only one whose text has the letter e.
std::filesystem::path corpus_with_e(const std::filesystem::path& folder) {
  const auto corpus = write_corpus(folder);
  write_wav(folder / "e.wav", sing("ee"), tone_rate);
  std::ofstream(corpus, std::ios::app) << R"({"audio_filepath": "e.wav", "text": "ee", "duration": 0.32})" << '\n';
  return corpus;
}

RunConfig run_of(const Folder& folder, const std::string& name, std::vector<std::string> more) {
  more.insert(more.begin(), {"batches.speed_factors=[1.0]", "batches.concat_probability=0", "batches.global_batch_size=1",
                             "phases=[{name=\"joint\", steps=30, schedule={lr=1e-3, warmup_steps=3}}]"});
  return tiny(folder.path / "corpus.jsonl", folder.path / name, more);
}

/// Puts a NaN where only samples with the letter e meet it: into its row of the embedding, in the newest checkpoint.
void spoil_e(const RunConfig& config) {
  const auto ids = load_run_inputs(config.trainer.output_dir, config).tokenizer.encode("ee");
  change_newest(config, "model/llm/embedding/weight", [&](Tensor& embedding) {
    embedding.rows_view(ids.back(), ids.back() + 1).fill(std::numeric_limits<double>::quiet_NaN());
  });
}

/// Makes the run's first step, spoils it, loses a file and goes on.
struct Spoilt {
  Heard heard;
  TrainingResult result;
  std::string error;
  explicit Spoilt(const RunConfig& config, const std::filesystem::path& lost = {}, int ranks = 1) {
    RunConfig first = config;
    first.trainer.stop_after_steps = 1;
    first.parallel = {};
    Heard start;
    train(first, start.hooks());
    spoil_e(config);
    if (!lost.empty()) std::filesystem::remove(lost);
    go_on(config, ranks);
  }
  void go_on(const RunConfig& config, int ranks) {
    try {
      result = train_on_threads(config, heard.hooks(), ranks);
    } catch (const Error& caught) {
      error = caught.what();
    }
  }
};

TEST(NonFiniteRun, SkipsAsManyBatchesAsAllowedAndTakesTheNext) {
  const Folder folder("nonfinite");
  corpus_with_e(folder.path);
  const RunConfig config = run_of(folder, "run", {"trainer.skip_nonfinite_steps=10"});
  const Spoilt run(config);
  ASSERT_EQ(run.error, "");
  EXPECT_EQ(run.result.step, 30);
  // Once in every epoch of thirteen batches.
  EXPECT_EQ(run.result.skipped_steps, 2);
  EXPECT_EQ(
      std::count_if(run.heard.messages.begin(), run.heard.messages.end(),
                    [](const std::string& text) { return text.starts_with("skipped a batch: the gradient norm of step"); }),
      2);
  EXPECT_TRUE(run.heard.said("(1 of at most 10). Its samples: 12"));
  ASSERT_EQ(run.heard.steps.size(), 29u);
  for (std::size_t i = 0; i < run.heard.steps.size(); ++i) {
    const StepReport& step = run.heard.steps[i];
    EXPECT_EQ(step.step, static_cast<std::int64_t>(i) + 2);  // only the place in the data went on
    EXPECT_EQ(step.lr, learning_rate(config.phases[0].schedule, static_cast<std::int64_t>(i) + 1, 30));
    EXPECT_TRUE(std::isfinite(step.loss) && std::isfinite(step.grad_norm)) << "step " << step.step;
  }
}

TEST(NonFiniteRun, OneMoreEndsTheRunAlsoAfterAResume) {
  const Folder folder("nonfinite_cap");
  corpus_with_e(folder.path);
  const Spoilt none(run_of(folder, "none", {}));
  EXPECT_THAT(none.error, HasSubstr("nothing was updated. Samples of the step: 12. The newest checkpoint"));
  const Spoilt once(run_of(folder, "once", {"trainer.skip_nonfinite_steps=1"}));
  const std::string expected =
      "nothing was updated; 1 such batches were skipped before, trainer.skip_nonfinite_steps is 1. Samples";
  EXPECT_THAT(once.error, HasSubstr(expected));
  ASSERT_GT(once.heard.steps.size(), none.heard.steps.size() + 5);

  // In two invocations: the first ends in the middle between the two.
  const auto cut = static_cast<std::int64_t>((none.heard.steps.size() + once.heard.steps.size()) / 2);
  Spoilt twice(run_of(folder, "twice", {"trainer.skip_nonfinite_steps=1", "trainer.stop_after_steps=" + std::to_string(cut)}));
  EXPECT_EQ(twice.error, "");
  EXPECT_EQ(twice.result.skipped_steps, 1);
  twice.go_on(run_of(folder, "twice", {"trainer.skip_nonfinite_steps=1"}), 1);
  EXPECT_THAT(twice.error, HasSubstr(expected));
  expect_same_steps(once.heard.steps, twice.heard.steps);
  // Who lets it skip more goes on from there.
  twice.go_on(run_of(folder, "twice", {"trainer.skip_nonfinite_steps=2"}), 1);
  EXPECT_EQ(twice.result.step, 30);
  EXPECT_EQ(twice.result.skipped_steps, 2);
}

/// A batch of this one recording: skipping it must equal the recording not being there, which leaves a batch without labels.
TEST(NonFiniteRun, ASkippedBatchLeavesEverythingElseAsItWas) {
  const Folder folder("nonfinite_same");
  corpus_with_e(folder.path);
  const Spoilt skipped(run_of(folder, "skipped", {"trainer.skip_nonfinite_steps=10"}));
  const Spoilt gone(run_of(folder, "gone", {}), folder.path / "e.wav");
  ASSERT_EQ(skipped.error + gone.error, "");
  EXPECT_EQ(skipped.result.skipped_steps, 2);
  EXPECT_EQ(gone.result.skipped_steps, 0);
  expect_same_steps(gone.heard.steps, skipped.heard.steps);
  EXPECT_EQ(gone.result.weight_hash, skipped.result.weight_hash);
}

struct NonFiniteLayout {
  const char* name;
  int ranks;
  std::vector<std::string> overrides;
};
class NonFiniteRanks : public ::testing::TestWithParam<NonFiniteLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, NonFiniteRanks,
                         ::testing::Values(NonFiniteLayout{"dp2", 2, {}}, NonFiniteLayout{"tp2", 2, {"parallel.tp_size=2"}},
                                           NonFiniteLayout{
                                               "tp2_sp_dp2", 4, {"parallel.tp_size=2", "parallel.sequence_parallel=true"}}),
                         [](const auto& info) { return std::string(info.param.name); });

/// The recording is one data-parallel rank's, the row of the embedding one tensor-parallel rank's: one rank meets the NaN
/// first.
TEST_P(NonFiniteRanks, AllSkipAndStopWhereOneMeetsIt) {
  const Folder folder(std::string("nonfinite_") + GetParam().name);
  corpus_with_e(folder.path);
  const auto config = [&](const std::string& name, const std::string& skipped, bool ranked) {
    std::vector<std::string> more{"batches.global_batch_size=2", "trainer.precision=fp64", "optimizer.eps=1e-3",
                                  "trainer.skip_nonfinite_steps=" + skipped};
    if (ranked) more.insert(more.end(), GetParam().overrides.begin(), GetParam().overrides.end());
    return run_of(folder, name, more);
  };
  const int ranks = GetParam().ranks;
  const Spoilt one(config("one", "10", false)), all(config("all", "10", true), {}, ranks);
  ASSERT_EQ(one.error + all.error, "");
  EXPECT_GT(one.result.skipped_steps, 1);
  EXPECT_EQ(one.result.skipped_steps, all.result.skipped_steps);
  ASSERT_EQ(one.heard.steps.size(), all.heard.steps.size());
  for (std::size_t i = 0; i < one.heard.steps.size(); ++i) {
    EXPECT_EQ(one.heard.steps[i].step, all.heard.steps[i].step);
    EXPECT_NEAR(all.heard.steps[i].loss / one.heard.steps[i].loss, 1, 1e-10) << "step " << one.heard.steps[i].step;
  }
  for (const auto* run : {&one, &all}) {  // whichever rank had it
    const auto said = std::ranges::find_if(run->heard.messages, [](const auto& text) { return text.starts_with("skipped a"); });
    EXPECT_THAT(*said, HasSubstr(" 12"));
  }

  // Not allowed to skip: each rank ends for that reason, none because another went away.
  const RunConfig strict = config("strict", "0", true);
  RunConfig first = strict;
  first.trainer.stop_after_steps = 1;
  first.parallel = {};
  train(first, {});
  spoil_e(strict);
  std::mutex mutex;
  std::vector<std::string> errors;
  EXPECT_THROW(run_ranks(ranks, {},
                         [&](Group& world) {
                           try {
                             train(strict, {}, world);
                           } catch (const Error& error) {
                             const std::lock_guard lock(mutex);
                             errors.push_back(error.what());
                             throw;
                           }
                         }),
               Error);
  EXPECT_EQ(errors.size(), static_cast<std::size_t>(ranks));
  EXPECT_THAT(errors, ::testing::Each(::testing::ContainsRegex("nothing was updated. Samples of the step:.* 12")));
}

}  // namespace
}  // namespace chorus
