// Ranks that no longer hold the same weights end the run.
#include <chorus/parallel/group/threads.h>
#include <gmock/gmock.h>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;
using ::testing::HasSubstr;

TEST(ReplicasRun, AWeightThatOneRankHasOtherwiseEndsTheRun) {
  const Folder folder("replicas");
  const auto corpus = write_corpus(folder.path);
  const auto run = [&](const char* name, std::vector<std::string> more) { return tiny(corpus, folder.path / name, more); };
  const RunConfig start = run("run", {"trainer.stop_after_steps=3"});
  train_on_threads(start, {}, 3);
  // Rank 1 goes on from a copy of the run in which one bit of one weight is another.
  std::filesystem::copy(folder.path / "run", folder.path / "copy", std::filesystem::copy_options::recursive);
  change_newest(run("copy", {}), "model/encoder/layers/0/ff1/up/weight",
                [](Tensor& weight) { static_cast<unsigned char*>(weight.data())[4 * 17 + 2] ^= 1; });
  const auto outcome = [&](const std::string& every) -> std::string {
    const std::vector<std::string> more{"parallel.check_replicas_every_n_steps=" + every, "trainer.stop_after_steps=4"};
    const RunConfig config = run("run", more), other = run("copy", more);
    std::vector<std::string> said(3);
    try {
      run_ranks(3, {}, [&](Group& world) {
        try {
          train(world.rank() == 1 ? other : config, {}, world);
        } catch (const Error& error) {
          said[static_cast<std::size_t>(world.rank())] = error.what();
          throw;
        }
      });
    } catch (const Error&) {
      for (const auto& text : said)
        EXPECT_THAT(text, HasSubstr("the same part of encoder.layers.0.ff1.up.weight hold other values of it: {0 2} {1}"));
    }
    return said[0];
  };
  EXPECT_THAT(outcome("4"), HasSubstr("after step 4 "));
  EXPECT_FALSE(std::filesystem::exists(folder.path / "run" / "checkpoints" / "step-000007")) << "of weights that are wrong";
  EXPECT_EQ(outcome("0"), "") << "nobody compares";
}

}  // namespace
}  // namespace chorus
