// Runs on several inputs, some in tar shards.
#include <cstdlib>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;

std::vector<std::string> mixture(const std::filesystem::path& folder, std::vector<std::string> more) {
  more.insert(more.end(), {"data.input_cfg=[{manifest_filepath='" + (folder / "short.jsonl").string() + "', weight=1}, " +
                               "{manifest_filepath='" + (folder / "tarred.jsonl").string() + "', tarred_audio_filepaths='" +
                               (folder / "audio_0.tar").string() + "', weight=3}]",
                           "data.reweight_temperature=0.5", "phases[0].steps=6", "phases[1].steps=6",
                           "phases[0].schedule.warmup_steps=2", "phases[1].schedule.warmup_steps=2", "data.train="});
  return more;
}

struct MixtureRun : ::testing::Test {
  Folder folder{"mixture"};
  std::filesystem::path corpus = write_corpus(folder.path);
  MixtureRun() {
    auto entries = read_manifest(corpus);
    write_manifest(folder.path / "short.jsonl", std::span(entries).first(5));
    for (ManifestEntry& e : entries) e.audio = e.audio.filename();
    write_manifest(folder.path / "tarred.jsonl", std::span(entries).subspan(5));
    const std::string pack = "cd '" + folder.path.string() + "' && tar -cf audio_0.tar *.wav";
    require(std::system(pack.c_str()) == 0, "test", pack);
  }
  RunConfig config(const std::string& name, const std::vector<std::string>& more = {}) const {
    RunConfig c = tiny("", folder.path / name, mixture(folder.path, more));
    return c;
  }
};

TEST_F(MixtureRun, StoppedInTheMiddleOfAnEpochItGoesOnBitByBit) {
  Heard straight;
  const TrainingResult whole = train(config("straight"), straight.hooks());
  EXPECT_TRUE(straight.said("tarred.jsonl: ")) << "the shares are told";
  ASSERT_EQ(straight.steps.size(), 12u);
  Heard all;
  TrainingResult result;
  for (const int at : {1, 4, 9, -1}) {
    Heard part;
    part.stop_at = at;
    result = train(config("stopped"), part.hooks());
    all.steps.insert(all.steps.end(), part.steps.begin(), part.steps.end());
  }
  expect_same_steps(straight.steps, all.steps);
  EXPECT_EQ(result.weight_hash, whole.weight_hash);
}

TEST_F(MixtureRun, OneInputIsTheShortForm) {
  Heard brief, one;
  const std::vector<std::string> steps{"phases[0].steps=4", "phases[1].steps=4"};
  const std::string a = train(tiny(corpus, folder.path / "brief", steps), brief.hooks()).weight_hash;
  std::vector<std::string> more = steps;
  more.push_back("data.input_cfg=[{manifest_filepath='" + corpus.string() + "', weight=1}]");
  RunConfig c = tiny("", folder.path / "one", more);
  const std::string b = train(c, one.hooks()).weight_hash;
  expect_same_steps(brief.steps, one.steps);
  EXPECT_EQ(a, b);
}

TEST_F(MixtureRun, AMissingShardCostsItsSamplesOnly) {
  std::filesystem::remove(folder.path / "audio_0.tar");
  Heard heard;
  const TrainingResult result = train(config("missing"), heard.hooks());
  EXPECT_EQ(result.step, 12);
  EXPECT_TRUE(heard.said("audio_0.tar") && heard.said("7 of its 7 recordings can't be read"));
  EXPECT_GT(result.drops.failed, 0);
}

}  // namespace
}  // namespace chorus
