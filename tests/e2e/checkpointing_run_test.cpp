// Runs with activation checkpointing are the runs without it, bit for bit, in less memory.
#include <chorus/parallel/group/threads.h>
#include <gmock/gmock.h>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;
using ::testing::HasSubstr;

/// Layers enough for what they keep to matter, both kinds of statistics and all kinds of dropout.
std::vector<std::string> deep_run(std::vector<std::string> more = {}) {
  for (const char* key : {"model.encoder.layers=3", "model.encoder.conv_norm=batch_norm", "model.encoder.batch_norm_mode=step",
                          "model.llm.num_hidden_layers=3", "model.llm.attention_dropout=0.1", "model.encoder.dropout_att=0.1",
                          "model.modality_adapter=conformer", "model.ctc_compressor=false", "phases[0].steps=4",
                          "phases[1].steps=5", "loader.micro_batch_size=2"})
    more.push_back(key);
  return more;
}

std::vector<std::string> checkpointed(const std::string& mode) {
  return {"trainer.activation_checkpointing_llm=" + mode, "trainer.activation_checkpointing_perception=" + mode};
}

std::size_t most_activations(const Heard& heard) {
  std::size_t most = 0;
  for (const auto& step : heard.steps)
    most = std::max(most, step.memory_peak_of[static_cast<std::size_t>(Category::activations)]);
  return most;
}

TEST(CheckpointingRun, ChangesNothingButMemory) {
  const Folder folder("checkpointing");
  const auto corpus = write_corpus(folder.path);
  Heard plain;
  const TrainingResult expected = train(tiny(corpus, folder.path / "none", deep_run()), plain.hooks());
  ASSERT_EQ(plain.steps.size(), 9u);
  std::size_t before = most_activations(plain);
  for (const std::string kind : {"selective", "full", "offloaded"}) {
    auto keys = checkpointed(kind == "offloaded" ? "full" : kind);
    if (kind == "offloaded") keys.push_back("trainer.activation_offload_folder=" + (folder.path / "disk").string());
    Heard heard;
    const TrainingResult result = train(tiny(corpus, folder.path / kind, deep_run(keys)), heard.hooks());
    expect_same_steps(plain.steps, heard.steps);
    EXPECT_EQ(result.weight_hash, expected.weight_hash) << kind;
    EXPECT_LT(most_activations(heard), before) << kind;
    before = most_activations(heard);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path / "disk"));
}

TEST(CheckpointingRun, GoesOnInAnotherMode) {
  const Folder folder("checkpointing_resumed");
  const auto corpus = write_corpus(folder.path);
  Heard plain, begun, ended;
  train(tiny(corpus, folder.path / "none", deep_run()), plain.hooks());
  auto keys = checkpointed("full");
  keys.push_back("trainer.stop_after_steps=6");
  EXPECT_EQ(train(tiny(corpus, folder.path / "run", deep_run(keys)), begun.hooks()).outcome, Outcome::paused);
  train(tiny(corpus, folder.path / "run", deep_run({"trainer.activation_checkpointing_llm=selective"})), ended.hooks());
  begun.steps.insert(begun.steps.end(), ended.steps.begin(), ended.steps.end());
  expect_same_steps(plain.steps, begun.steps);
}

TEST(CheckpointingRun, RanksAgreeOnTheMode) {
  const Folder folder("checkpointing_ranks");
  const auto corpus = write_corpus(folder.path);
  const RunConfig one = tiny(corpus, folder.path / "run"), other = tiny(corpus, folder.path / "run", checkpointed("full"));
  try {
    run_ranks(2, {}, [&](Group& world) { train(world.rank() ? other : one, {}, world); });
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the configuration of rank 1 differs from rank 0's"));
  }
}

TEST(CheckpointingConfig, RefusesWhatHasNoEffect) {
  const auto refusal = [](std::vector<std::string> keys) -> std::string {
    try {
      tiny("corpus.jsonl", "run", std::move(keys));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({"trainer.activation_checkpointing_llm=some"}), HasSubstr("\"none\", \"selective\", \"full\""));
  EXPECT_THAT(refusal({"trainer.activation_offload_folder=somewhere"}), HasSubstr("has no effect"));
  EXPECT_THAT(refusal({"trainer.activation_checkpointing_llm=full", "model.decoder=false",
                       "phases=[{name=\"ctc\", llm_weight=0, ctc_weight=1}]", "model.ctc_compressor=false",
                       "model.ctc_posteriors=false"}),
              HasSubstr("activation_checkpointing_llm is full, but model.decoder is false"));
  EXPECT_THAT(refusal({"trainer.activation_checkpointing_perception=full", "model.perception=false", "model.ctc_head=false",
                       "prompt=\"{bos}{answer}{eos}\"", "features={}", "batches={batch_tokens=20}", "phases=[{name=\"text\"}]",
                       "model.ctc_compressor=false", "model.ctc_posteriors=false"}),
              HasSubstr("activation_checkpointing_perception is full, but model.perception is false"));
}

}  // namespace
}  // namespace chorus
