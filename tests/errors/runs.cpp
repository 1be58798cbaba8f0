#include "errors/runs.h"

namespace chorus::errors {

std::string line(const std::string& audio, const std::string& text, const std::string& more) {
  return R"({"audio_filepath": ")" + audio + R"(", "text": ")" + text + '"' + more + "}\n";
}

void write_corpus(const Scene& scene, const std::string& lines) {
  std::string manifest;
  for (const std::string text : {"ab", "bc", "abc", "bcd"}) {
    write_wav(text + ".wav", testing::sing(text), testing::tone_rate);
    manifest += line(text + ".wav", text);
  }
  scene.write("train.jsonl", manifest + lines);
}

RunConfig tiny(std::vector<std::string> overrides) {
  std::vector<std::string> all = {"data.train=train.jsonl",
                                  "trainer.output_dir=run",
                                  "phases[0].steps=2",
                                  "phases[1].steps=2",
                                  "phases[0].schedule.warmup_steps=1",
                                  "phases[1].schedule.warmup_steps=1"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return parse_config<RunConfig>(testing::tiny_config, "tiny.toml", all).value;
}

std::string Trained::said(std::string_view part) const {
  std::string all;
  for (const auto& message : heard.messages) {
    if (message.find(part) != message.npos) return message;
    all += '\n' + message;
  }
  ADD_FAILURE() << "\"" << part << "\" wasn't said:" << all;
  return {};
}

std::unique_ptr<Trained> train_tiny(std::vector<std::string> overrides) {
  auto trained = std::make_unique<Trained>();
  try {
    trained->result = train(tiny(std::move(overrides)), trained->heard.hooks());
    EXPECT_EQ(trained->result.outcome, Outcome::finished);
    EXPECT_EQ(trained->result.step, 4);
  } catch (const Error& error) {
    ADD_FAILURE() << "training ended: " << error.what();
  }
  return trained;
}

Seen costs_a_line(const Scene& scene, const std::string& bad_line, std::string_view message, const std::string& reason,
                  std::initializer_list<std::string_view> parts, std::vector<std::string> overrides) {
  write_corpus(scene, bad_line);
  const auto trained = train_tiny(std::move(overrides));
  const std::string said = trained->said(message);
  expect_parts(said, parts);
  const std::string report = trained->result.drops.report();
  expect_parts(report, {reason});
  for (const auto& step : trained->heard.steps) EXPECT_GT(step.samples, 0) << "step " << step.step;
  return {said, "training goes on with the others; the end of the run counts it: \"" + report + '"'};
}

}  // namespace chorus::errors
