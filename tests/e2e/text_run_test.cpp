// A decoder trained on text alone, and its weights as the first values of a model that listens.
#include <chorus/apps/training_state.h>
#include <gmock/gmock.h>

#include <map>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::filesystem::path write_texts(const std::filesystem::path& folder) {
  std::vector<ManifestEntry> entries;
  for (int i = 0; i < 24; ++i) {
    std::string text;
    for (int k = 0; k < 4 + i % 9; ++k) text += static_cast<char>('a' + (i + k) % 4);
    entries.push_back({.audio = {}, .text = text});
    entries.back().id = std::to_string(i);
  }
  write_manifest(folder / "texts.jsonl", entries);
  return folder / "texts.jsonl";
}

/// The tiny model without its perception.
RunConfig text_config(const std::filesystem::path& texts, const std::filesystem::path& output,
                      std::vector<std::string> overrides = {}) {
  std::vector<std::string> all{"prompt=\"{bos}{answer}{eos}\"",
                               "features={}",
                               "spec_augment={}",
                               "batches={batch_tokens=40}",
                               "model.perception=false",
                               "model.ctc_head=false",
                               "model.ctc_compressor=false",
                               "model.ctc_posteriors=false",
                               "phases=[{name=\"text\", steps=60, schedule={name=\"cosine\", lr=1e-2, warmup_steps=4}}]"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return tiny(texts, output, all);
}

std::map<std::string, std::vector<double>> weights_of(const RunConfig& config, const std::string& prefix) {
  std::map<std::string, std::vector<double>> out;
  for (const auto& [name, values] : newest_tensors(config))
    if (name.starts_with(prefix)) out.emplace(name, values);
  return out;
}

TEST(TextRun, LearnsToPredictTextAndResumes) {
  const Folder folder("text");
  const auto texts = write_texts(folder.path);
  const RunConfig config = text_config(texts, folder.path / "run", {"data.validation=" + texts.string()});
  Heard whole;
  EXPECT_EQ(train(config, whole.hooks()).outcome, Outcome::finished);
  ASSERT_EQ(whole.steps.size(), 60u);
  for (const auto& step : whole.steps) {
    EXPECT_EQ(step.frames, 0);
    EXPECT_GT(step.labels, 0);
    EXPECT_LE(step.labels, 40 + step.samples) << "tokens of the batch and an end for each text";
  }
  // From the second letter on, each follows from the one before it, until the end.
  ASSERT_EQ(whole.evaluations.size(), 1u);
  const Evaluation& at_end = whole.evaluations[0];
  EXPECT_LT(at_end.llm_loss, 0.6 * whole.steps[0].llm_loss);
  EXPECT_LT(at_end.perplexity(), 2.5);
  EXPECT_FALSE(at_end.listens);
  std::int64_t bytes = 0, labels = 0;
  for (const auto& e : read_manifest(texts, {}, Content::text)) {
    bytes += static_cast<std::int64_t>(e.text.size());
    labels += static_cast<std::int64_t>(e.text.size()) + 1;
  }
  EXPECT_EQ(at_end.text_bytes, bytes);
  EXPECT_EQ(at_end.labels, labels);
  EXPECT_NEAR(at_end.bits_per_byte(), std::log2(at_end.perplexity()) * static_cast<double>(labels) / static_cast<double>(bytes),
              1e-12);
  for (const auto& [name, values] : newest_tensors(config)) EXPECT_NE(name.find("/llm/"), name.npos) << name;

  const LoadedRun run = load_run(config.trainer.output_dir, [](const std::string& line) { ADD_FAILURE() << line; });
  EXPECT_EQ(evaluate(*run.transcriber, sources_of(read_manifest(texts, {}, Content::text)), {}).llm_loss, at_end.llm_loss);

  Heard first, second;
  EXPECT_EQ(train(text_config(texts, folder.path / "cut", {"trainer.stop_after_steps=33"}), first.hooks()).outcome,
            Outcome::paused);
  train(text_config(texts, folder.path / "cut"), second.hooks());
  first.steps.insert(first.steps.end(), second.steps.begin(), second.steps.end());
  expect_same_steps(whole.steps, first.steps);
}

TEST(TextRun, RefusesWhatTextDoesNotHave) {
  const Folder folder("text_errors");
  const auto texts = write_texts(folder.path);
  int errors = 0;
  const auto error = [&](const std::vector<std::string>& overrides, const std::string& message) {
    const std::string name = "error" + std::to_string(++errors);
    EXPECT_THAT([&] { train(text_config(texts, folder.path / name, overrides), {}); },
                ThrowsMessage<Error>(HasSubstr(message)));
  };
  error({"batches={batch_frames=100}"}, "model.perception is false");
  error({"batches={batch_tokens=40, concat_probability=0.5}"}, "model.perception is false");
  error({"features.normalize=global"}, "there is no sound to measure");
  error({"model.ctc_head=true"}, "perception = false leaves out");
  error({"model.decoder=false"}, "are both false");
  error({"prompt=\"{audio}{bos}{answer}{eos}\""}, "has {audio}, but model.perception is false");
  error({"prompt=\"{answer}{eos}\""}, "add {bos}");
  EXPECT_THAT([&] { train(tiny(texts, folder.path / "run"), {}); },
              ThrowsMessage<Error>(HasSubstr("field 'audio_filepath' is missing")));
}

TEST(InitFrom, TakesWhatItsPatternsNameAndNothingElse) {
  const Folder folder("init_from");
  const auto texts = write_texts(folder.path), corpus = write_corpus(folder.path);
  const RunConfig source = text_config(texts, folder.path / "text");
  train(source, {});
  const auto run = (folder.path / "text").string();
  const auto speech = [&](const std::string& name, const std::vector<std::string>& overrides) {
    std::vector<std::string> all{"phases[0].steps=2", "phases[0].schedule.warmup_steps=0", "phases[1].steps=1",
                                 "phases[1].schedule.warmup_steps=0"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return tiny(corpus, folder.path / name, all);
  };
  // Both manifests have the letters a to d, but not equally often: another tokenizer.
  Heard heard;
  const RunConfig layers = speech(
      "layers", {"trainer.stop_after_steps=1", "init_from=[{run=\"" + run + "\", keep=[\"llm.layers\", \"llm.norm\"]}]"});
  ASSERT_EQ(train(layers, heard.hooks()).outcome, Outcome::paused);
  EXPECT_TRUE(heard.said("init_from[0]: 10 tensors")) << ::testing::PrintToString(heard.messages);
  EXPECT_TRUE(heard.said("none is missing"));
  const auto before = weights_of(source, "model/llm/"), after = weights_of(layers, "model/llm/");
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, values] : before)  // the phase freezes the decoder, so it still has its first values
    EXPECT_EQ(values == after.at(name), name.starts_with("model/llm/layers/") || name.starts_with("model/llm/norm/")) << name;
  const RunConfig plain = speech("plain", {"trainer.stop_after_steps=1"});
  train(plain, {});
  EXPECT_EQ(weights_of(plain, "model/encoder/"), weights_of(layers, "model/encoder/")) << "what isn't named starts as ever";

  int errors = 0;
  const auto error = [&](const std::string& init, const std::string& message, const std::vector<std::string>& more = {}) {
    auto overrides = more;
    overrides.push_back("init_from=[" + init + "]");
    const std::string name = "error" + std::to_string(++errors);
    EXPECT_THAT([&] { train(speech(name, overrides), {}); }, ThrowsMessage<Error>(HasSubstr(message)));
  };
  error("{run=\"" + run + "\", keep=[\"llm\"]}", "pieces of another tokenizer");
  error("{run=\"" + run + "\", keep=[\"llm.layers\", \"decoder\"]}", "init_from[0].keep: 'decoder' matches none");
  error("{run=\"" + run + "\", keep=[\"llm.layers\", \"encoder\"]}", "'encoder' matches none");
  error("{run=\"" + run + "\", keep=[\"llm.layers\"]}", "has shape", {"model.llm.intermediate_size=20"});
  error("{run=\"" + (folder.path / "nowhere").string() + "\"}", "has no config.toml");
  error("{keep=[\"llm\"]}", "init_from[0].run: is missing");

  // With the same tokenizer the whole decoder fits; what the other run lacks is told.
  Heard all;
  const RunConfig whole = speech("whole", {"tokenizer_model=" + run + "/tokenizer.model", "init_from=[{run=\"" + run + "\"}]"});
  train(whole, all.hooks());
  EXPECT_TRUE(all.said("not there, so left at their first values: encoder.")) << ::testing::PrintToString(all.messages);
}

}  // namespace
}  // namespace chorus
