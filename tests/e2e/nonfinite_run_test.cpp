// A step whose gradient or loss isn't finite changes nothing: it ends the run, or is skipped as often as the configuration
// says.
#include <chorus/apps/run_folder.h>
#include <gmock/gmock.h>

#include <fstream>
#include <limits>

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
  const auto folder = config.trainer.output_dir / "checkpoints";
  Context context;
  const auto checkpoint = find_checkpoint(folder, [](const std::string&) {});
  ASSERT_TRUE(checkpoint);
  const auto ids = load_run_inputs(config.trainer.output_dir, config).tokenizer.encode("ee");
  std::vector<CheckpointEntry> entries;
  for (const auto& tensor : checkpoint->manifest().tensors) {
    entries.push_back({tensor.path, checkpoint->read(context, tensor.path)});
    if (tensor.path == "model/llm/embedding/weight")
      entries.back().tensor.rows_view(ids.back(), ids.back() + 1).fill(std::numeric_limits<double>::quiet_NaN());
  }
  const auto manifest = checkpoint->manifest();
  save_checkpoint(folder, manifest.step, entries, manifest.state, canonical_toml(config));
}

/// Makes the run's first step, spoils it, loses a file and goes on.
struct Spoilt {
  Heard heard;
  TrainingResult result;
  std::string error;
  explicit Spoilt(const RunConfig& config, const std::filesystem::path& lost = {}) {
    RunConfig first = config;
    first.trainer.stop_after_steps = 1;
    Heard start;
    train(first, start.hooks());
    spoil_e(config);
    if (!lost.empty()) std::filesystem::remove(lost);
    go_on(config);
  }
  void go_on(const RunConfig& config) {
    try {
      result = train(config, heard.hooks());
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
  twice.go_on(run_of(folder, "twice", {"trainer.skip_nonfinite_steps=1"}));
  EXPECT_THAT(twice.error, HasSubstr(expected));
  expect_same_steps(once.heard.steps, twice.heard.steps);
  // Who lets it skip more goes on from there.
  twice.go_on(run_of(folder, "twice", {"trainer.skip_nonfinite_steps=2"}));
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

}  // namespace
}  // namespace chorus
