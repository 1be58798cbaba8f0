// What a run trains, what it leaves alone, and whether the result can be used.
#include <chorus/apps/training_state.h>
#include <gmock/gmock.h>

#include <map>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;

using Tensors = std::map<std::string, std::vector<double>>;

Tensors named(const std::vector<std::pair<std::string, std::vector<double>>>& tensors) {
  return {tensors.begin(), tensors.end()};
}

/// Names under `prefix` whose values differ, and how many are equal.
std::pair<std::vector<std::string>, int> changed(const Tensors& before, const Tensors& after, const std::string& prefix) {
  std::pair<std::vector<std::string>, int> out;
  for (const auto& [name, values] : before) {
    if (!name.starts_with(prefix)) continue;
    if (after.at(name) != values)
      out.first.push_back(name);
    else
      ++out.second;
  }
  return out;
}

TEST(LearningRun, FrozenParametersStayAsTheyAre) {
  const Folder folder("frozen");
  const auto corpus = write_corpus(folder.path);
  const std::vector<std::string> overrides{"trainer.stop_after_steps=5", "phases[0].steps=5", "phases[1].steps=5",
                                           "phases[1].freeze_params=[\"encoder\"]",
                                           "phases[1].prevent_freeze_params=[\"encoder.layers\"]"};
  const RunConfig config = tiny(corpus, folder.path / "run", overrides);
  // First values follow from seed and path alone, so a model built here has those of the run.
  Heard heard;
  ASSERT_EQ(train(config, heard.hooks()).outcome, Outcome::paused);
  Tensors start;
  {
    Context context;
    const RunInputs inputs = load_run_inputs(config.trainer.output_dir, config);
    const auto built = build_salm(context, config, inputs.tokenizer, {});
    for (const auto& [name, tensor, entry] : named_weights(*built)) start.emplace(name, tensor.to_doubles());
  }
  const Tensors ctc = named(newest_tensors(config));
  EXPECT_TRUE(changed(start, ctc, "model/llm").first.empty() && changed(start, ctc, "model/llm").second > 5);
  EXPECT_TRUE(changed(start, ctc, "model/projection").first.empty() && changed(start, ctc, "model/projection").second > 0);
  EXPECT_GT(changed(start, ctc, "model/encoder").first.size(), 10u);
  EXPECT_EQ(changed(start, ctc, "model/ctc_head").second, 0);

  ASSERT_EQ(train(config, heard.hooks()).step, 10);
  const Tensors joint = named(newest_tensors(config));
  for (const auto& name : changed(ctc, joint, "model/encoder").first)
    EXPECT_TRUE(name.starts_with("model/encoder/layers")) << name;
  EXPECT_GT(changed(ctc, joint, "model/encoder").second, 2);
  EXPECT_GT(changed(ctc, joint, "model/encoder/layers").first.size(), 5u);
  EXPECT_GT(changed(ctc, joint, "model/llm").first.size(), 5u);
}

TEST(LearningRun, LearnsToSpellTonesAndTranscribesThem) {
  const Folder folder("learning");
  const auto corpus = write_corpus(folder.path);
  const RunConfig config = tiny(corpus, folder.path / "run",
                                {"data.validation=" + corpus.string(), "phases[0].steps=120", "phases[1].steps=180",
                                 "batches.concat_probability=0", "phases[1].schedule.lr=1e-2"});
  Heard heard;
  train(config, heard.hooks());
  ASSERT_EQ(heard.evaluations.size(), 1u);
  const Evaluation& at_end = heard.evaluations[0];

  const LoadedRun run = load_run(config.trainer.output_dir, [](const std::string& line) { ADD_FAILURE() << line; });
  EXPECT_EQ(run.step, 300);
  const Corpus recordings = run.transcriber->corpus(read_manifest(corpus));
  EXPECT_TRUE(recordings.dropped.empty());
  ASSERT_EQ(recordings.recordings.size(), 12u);
  const Evaluation loaded = evaluate(*run.transcriber, sources_of(read_manifest(corpus)), {});
  EXPECT_EQ(loaded.llm_loss, at_end.llm_loss);
  EXPECT_EQ(loaded.ctc_loss, at_end.ctc_loss);
  ASSERT_EQ(loaded.entries.size(), 12u);
  std::string all;
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(loaded.entries[i].text, at_end.entries[i].text);
    EXPECT_EQ(loaded.entries[i].ctc, at_end.entries[i].ctc);
    all += recordings.recordings[i].text + ": " + loaded.entries[i].text + ", " + loaded.entries[i].ctc + '\n';
  }
  RecordProperty("llm_cer", std::to_string(loaded.llm.characters.value()));
  EXPECT_LT(loaded.llm.characters.value(), 0.2) << all;
  EXPECT_LT(loaded.ctc.characters.value(), 0.2) << all;
  // Another's sound gives another's text: it listens.
  EXPECT_GT(run.transcriber->control_other(recordings.recordings, 5).characters.value(), 0.5) << all;
}

TEST(LearningRun, EvaluationsHearLongRecordingsInChunksAsTheCommandDoes) {
  const Folder folder("chunks");
  const auto corpus = write_corpus(folder.path);
  write_wav(folder.path / "long.wav", sing("abcddcba"), tone_rate);
  write_wav(folder.path / "short.wav", sing("abc"), tone_rate);
  const auto heldout = folder.path / "heldout.jsonl";
  const std::vector<ManifestEntry> entries{{.audio = folder.path / "long.wav", .text = "abcddcba"},
                                           {.audio = folder.path / "short.wav", .text = "abc"}};
  write_manifest(heldout, entries);
  const RunConfig config =
      tiny(corpus, folder.path / "run", {"data.validation=" + heldout.string(), "model.encoder_chunk_size_seconds=0.64"});
  Heard heard;
  train(config, heard.hooks());
  ASSERT_EQ(heard.evaluations.size(), 1u);
  const LoadedRun run = load_run(config.trainer.output_dir, [](const std::string& line) { ADD_FAILURE() << line; });
  const Evaluation loaded =
      evaluate(*run.transcriber, sources_of(read_manifest(heldout)), {.chunks = chunk_options({}, config)});
  ASSERT_EQ(loaded.entries.size(), 2u);
  EXPECT_EQ(loaded.entries[0].segments, 2);
  EXPECT_EQ(loaded.with_loss, 1);
  EXPECT_EQ(loaded.llm_loss, heard.evaluations[0].llm_loss);
  for (std::size_t i = 0; i < loaded.entries.size(); ++i) {
    EXPECT_EQ(loaded.entries[i].segments, heard.evaluations[0].entries[i].segments);
    EXPECT_EQ(loaded.entries[i].text, heard.evaluations[0].entries[i].text);
  }
}

TEST(LearningRun, ChunksShorterThanTheShortestTailAreRefusedBeforeTheFirstStep) {
  const Folder folder("tail");
  const auto corpus = write_corpus(folder.path);
  const RunConfig config =
      tiny(corpus, folder.path / "run", {"data.validation=" + corpus.string(), "model.encoder_chunk_size_seconds=0.3"});
  Heard heard;
  EXPECT_THAT([&] { train(config, heard.hooks()); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("encoder_chunk_size_seconds")));
  EXPECT_TRUE(heard.steps.empty());
}

}  // namespace
}  // namespace chorus
