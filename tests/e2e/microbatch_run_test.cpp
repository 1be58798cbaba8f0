// How a step is cut into microbatches doesn't matter; what can't be trained is an error that leaves the run intact.
#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;

TEST(MicrobatchRun, CuttingTheGlobalBatchChangesNothing) {
  const Folder folder("micro");
  const auto corpus = write_corpus(folder.path);
  const auto run = [&](int most) {
    Heard heard;
    const RunConfig config =
        tiny(corpus, folder.path / ("micro" + std::to_string(most)),
             {"trainer.precision=fp64", "phases[0].schedule.warmup_steps=1", "phases[1].schedule.warmup_steps=1",
              "phases[0].steps=3", "phases[1].steps=3", "loader.micro_batch_size=" + std::to_string(most)});
    train(config, heard.hooks());
    return std::pair(heard.steps, newest_tensors(config));
  };
  const auto [whole, weights] = run(0);
  ASSERT_EQ(whole.size(), 6u);
  for (const int most : {1, 4}) {
    const auto [steps, cut_weights] = run(most);
    ASSERT_EQ(steps.size(), whole.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(whole[i].microbatches, 1);
      EXPECT_EQ(steps[i].microbatches, (steps[i].samples + most - 1) / most) << "step " << steps[i].step;
      EXPECT_EQ(steps[i].samples, whole[i].samples);
      EXPECT_EQ(steps[i].labels, whole[i].labels);
      EXPECT_NEAR(steps[i].loss, whole[i].loss, 1e-12 * std::max(1.0, whole[i].loss))
          << "step " << steps[i].step << ", at most " << most;
    }
    ASSERT_EQ(cut_weights.size(), weights.size());
    double worst = 0;
    std::string where;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      ASSERT_EQ(cut_weights[i].first, weights[i].first);
      for (std::size_t k = 0; k < weights[i].second.size(); ++k) {
        const double off = std::abs(cut_weights[i].second[k] - weights[i].second[k]);
        if (!(off <= worst)) {
          worst = off;
          where = weights[i].first + '[' + std::to_string(k) + "]: " + std::to_string(weights[i].second[k]) + " and " +
                  std::to_string(cut_weights[i].second[k]);
        }
      }
    }
    EXPECT_LE(worst, 1e-10) << where << ", at most " << most << " samples";
  }
}

TEST(MicrobatchRun, GradientThatIsNotFiniteEndsTheRunBeforeTheUpdate) {
  const Folder folder("infinite");
  const auto corpus = write_corpus(folder.path);
  const RunConfig config =
      tiny(corpus, folder.path / "run",
           {"trainer.checkpoint_every_n_steps=3", "phases[0].steps=4", "phases[1].schedule={name=\"constant\", lr=1e30}"});
  Heard heard;
  try {
    train(config, heard.hooks());
    FAIL() << "trained";
  } catch (const Error& error) {
    // Step 5 puts weights out of range; the gradient of step 6 shows it.
    const std::string text = error.what();
    EXPECT_NE(text.find("gradient norm of step 6"), text.npos) << text;
    EXPECT_NE(text.find("Samples of the step: "), text.npos) << text;
    EXPECT_NE(text.find((config.trainer.output_dir / "checkpoints").string()), text.npos) << text;
  }
  EXPECT_EQ(heard.steps.size(), 5u);
  const auto newest =
      find_checkpoint(config.trainer.output_dir / "checkpoints", [](const std::string& line) { ADD_FAILURE() << line; });
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->manifest().step, 3u);
  for (const auto& [name, values] : newest_tensors(config))
    for (const double x : values) ASSERT_TRUE(std::isfinite(x)) << name << ": " << x;
}

}  // namespace
}  // namespace chorus
