// A run that was stopped, interrupted or damaged goes on as if nothing had happened.
#include <chorus/apps/run_lock.h>
#include <chorus/tensor/kernels/matmul.h>

#include <fstream>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;

class ResumeRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = new Folder("resume");
    corpus = write_corpus(folder->path);
    unbroken = new Heard;
    result = train(tiny(corpus, folder->path / "unbroken", {"trainer.checkpoint_every_n_steps=5"}), unbroken->hooks());
  }
  static void TearDownTestSuite() {
    delete unbroken;
    delete folder;
  }
  static inline Folder* folder = nullptr;
  static inline std::filesystem::path corpus;
  static inline Heard* unbroken = nullptr;
  static inline TrainingResult result;
};

TEST_F(ResumeRun, UnbrokenRunReportsEveryStep) {
  EXPECT_EQ(result.outcome, Outcome::finished);
  EXPECT_EQ(result.step, 30);
  ASSERT_EQ(unbroken->steps.size(), 30u);
  for (std::size_t i = 0; i < 30; ++i) {
    const StepReport& r = unbroken->steps[i];
    EXPECT_EQ(r.step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(r.phase, i < 14 ? "ctc" : "joint");
    EXPECT_TRUE(std::isfinite(r.loss) && r.loss > 0) << "step " << r.step << ": " << r.loss;
    EXPECT_TRUE(std::isfinite(r.grad_norm) && r.grad_norm > 0) << "step " << r.step << ": " << r.grad_norm;
    EXPECT_GT(r.lr, 0);
    EXPECT_EQ(r.total_steps, 30);
    EXPECT_GT(r.samples * r.frames * r.labels, 0) << "step " << r.step;
    EXPECT_GT(r.flops, 0);
    EXPECT_GE(r.memory_peak, r.memory);
    EXPECT_EQ(r.llm_loss > 0, i >= 14) << "step " << r.step;
  }
  EXPECT_LT(unbroken->steps[13].loss, unbroken->steps[0].loss);
  const Checkpoint newest(folder->path / "unbroken" / "checkpoints" / "step-000030");
  EXPECT_TRUE(newest.verify().empty());
  EXPECT_EQ(newest.manifest().step, 30u);
  EXPECT_TRUE(unbroken->said("phase joint"));
}

TEST_F(ResumeRun, StopFlagSavesAndTheNextStartGoesOn) {
  // In the first phase, at its very end, and in the second: a stop every time.
  Heard all;
  const RunConfig config = tiny(corpus, folder->path / "stopped");
  for (const std::int64_t at : {7, 14, 15, 22}) {
    Heard part;
    part.stop_at = at;
    const TrainingResult r = train(config, part.hooks());
    EXPECT_EQ(r.outcome, Outcome::stopped);
    EXPECT_EQ(r.step, at);
    EXPECT_TRUE(std::filesystem::exists(config.trainer.output_dir / "checkpoints" /
                                        ("step-0000" + std::string(at < 10 ? "0" : "") + std::to_string(at))));
    all.steps.insert(all.steps.end(), part.steps.begin(), part.steps.end());
  }
  Heard rest;
  const TrainingResult r = train(config, rest.hooks());
  EXPECT_TRUE(rest.said("resumed from"));
  all.steps.insert(all.steps.end(), rest.steps.begin(), rest.steps.end());
  EXPECT_EQ(r.outcome, Outcome::finished);
  expect_same_steps(unbroken->steps, all.steps);
  EXPECT_EQ(r.weight_hash, result.weight_hash);
}

TEST_F(ResumeRun, FinishedRunStaysFinished) {
  Heard again;
  const TrainingResult r =
      train(tiny(corpus, folder->path / "unbroken", {"trainer.checkpoint_every_n_steps=5"}), again.hooks());
  EXPECT_EQ(r.outcome, Outcome::finished);
  EXPECT_TRUE(again.steps.empty());
  EXPECT_EQ(r.weight_hash, result.weight_hash);
}

TEST_F(ResumeRun, ThreadsPrefetchAndEvaluationsDoNotMatter) {
  Heard other;
  // Where a product's last bits depend on the number of threads, that stays as it was.
  const bool any_number = kernel::matmul_description().find("depend on the number of threads") == std::string::npos;
  const TrainingResult r =
      train(tiny(corpus, folder->path / "threads",
                 {std::string("trainer.threads=") + (any_number ? "3" : "1"), "loader.threads=2", "loader.prefetch=1",
                  "data.validation=" + corpus.string(), "trainer.val_check_interval=9"}),
            other.hooks());
  EXPECT_EQ(other.evaluations.size(), 4u);  // after 9, 18, 27 and at the end
  expect_same_steps(unbroken->steps, other.steps);
  EXPECT_EQ(r.weight_hash, result.weight_hash);
}

TEST_F(ResumeRun, DamagedNewestCheckpointGivesWayToTheOneBefore) {
  const RunConfig config =
      tiny(corpus, folder->path / "damaged", {"trainer.checkpoint_every_n_steps=5", "trainer.stop_after_steps=20"});
  Heard before;
  EXPECT_EQ(train(config, before.hooks()).outcome, Outcome::paused);
  const auto file = config.trainer.output_dir / "checkpoints" / "step-000020" / "rank-0000.h5";
  ASSERT_TRUE(std::filesystem::exists(file));
  {
    std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
    const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(file) / 2);
    bytes.seekg(middle);
    const auto byte = static_cast<char>(bytes.get() ^ 1);
    bytes.seekp(middle);
    bytes.put(byte);
  }
  Heard after;
  const TrainingResult r = train(config, after.hooks());
  EXPECT_TRUE(after.said("step-000020") && after.said("rank-0000.h5"))
      << (after.messages.empty() ? "silence" : after.messages[0]);
  EXPECT_TRUE(after.said("at step 15"));
  expect_same_steps({unbroken->steps.begin() + 15, unbroken->steps.end()}, after.steps);
  EXPECT_EQ(r.weight_hash, result.weight_hash);
}

TEST_F(ResumeRun, AnotherConfigurationInTheSameFolderIsAnError) {
  const auto output = folder->path / "unbroken";
  try {
    train(tiny(corpus, output, {"optimizer.weight_decay=0.5"}), {});
    FAIL() << "trained";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(output.string()), text.npos) << text;
    EXPECT_NE(text.find("was: optimizer.weight_decay = 0.01"), text.npos) << text;
    EXPECT_NE(text.find("now: optimizer.weight_decay = 0.5"), text.npos) << text;
  }
}

TEST_F(ResumeRun, AnotherManifestUnderTheSameNameIsAnError) {
  const auto manifest = corpus.parent_path() / "changing.jsonl";
  std::filesystem::copy_file(corpus, manifest);
  const RunConfig config = tiny(manifest, folder->path / "manifest", {"trainer.stop_after_steps=3"});
  EXPECT_EQ(train(config, {}).outcome, Outcome::paused);
  std::ofstream(manifest, std::ios::app) << "\n";
  try {
    train(config, {});
    FAIL() << "trained";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("changing.jsonl isn't the manifest"), std::string::npos) << error.what();
  }
}

TEST_F(ResumeRun, OneFolderHoldsOneTrainingProcess) {
  const RunConfig config = tiny(corpus, folder->path / "locked");
  const RunLock other(config.trainer.output_dir);
  EXPECT_THROW(train(config, {}), Error);
}

}  // namespace
}  // namespace chorus
