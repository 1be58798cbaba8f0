// What a run leaves behind for people, also after interruptions.
#include <chorus/apps/report/read.h>
#include <chorus/apps/run_lock.h>
#include <chorus/apps/run_record.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "e2e/tiny_run.h"
#include "tfevents_reader.h"

namespace chorus {
namespace {
using namespace testing;

std::vector<nlohmann::json> lines_of(const std::filesystem::path& file, const std::string& event) {
  std::ifstream in(file);
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(in, line);) {
    auto json = nlohmann::json::parse(line);
    if (json["event"] == event) out.push_back(std::move(json));
  }
  return out;
}

/// Trains as the command does, and hears what the trainer's hooks say too.
struct Recorded {
  Heard heard;
  std::vector<std::string> said;
  TrainingResult result;
  void train(const RunConfig& config, std::int64_t interval = 10, std::size_t transcripts = 50) {
    RunRecord record(config.trainer.output_dir,
                     {.matrix_peak = 1e9, .interval = interval, .transcripts = transcripts, .config = canonical_toml(config)},
                     [this](const std::string& text) { said.push_back(text); });
    TrainerHooks hooks = heard.hooks();
    hooks.start = [&](const StartReport& report) { record.start(report); };
    hooks.step = [&](const StepReport& report) {
      record.step(report);
      heard.steps.push_back(report);
      if (report.step == heard.stop_at) heard.stop = true;
    };
    hooks.evaluation = [&](const EvaluationReport& report) { record.evaluation(report); };
    result = chorus::train(config, hooks);
    record.end(result);
  }
};

TEST(RunRecord, SaysEverythingOfEveryStep) {
  const Folder folder("record");
  const auto corpus = write_corpus(folder.path);
  const RunConfig config =
      tiny(corpus, folder.path / "run", {"data.validation=" + corpus.string(), "trainer.val_check_interval=14"});
  Recorded run;
  run.train(config, 4, 5);
  EXPECT_TRUE(run.said.empty()) << run.said[0];
  const auto metrics = config.trainer.output_dir / "metrics.jsonl";
  const auto steps = lines_of(metrics, "step");
  ASSERT_EQ(steps.size(), 30u);
  std::vector<double> covered;  // part of each step's time that its operations account for
  for (std::size_t i = 0; i < 30; ++i) {
    const StepReport& r = run.heard.steps[i];
    const auto& line = steps[i];
    EXPECT_EQ(line["step"], r.step);
    EXPECT_EQ(line["loss"].get<double>(), r.loss);
    EXPECT_EQ(line["grad_norm"].get<double>(), r.grad_norm);
    EXPECT_EQ(line["lr"].get<double>(), r.lr);
    EXPECT_EQ(line["seconds"].get<double>(), r.seconds);
    EXPECT_EQ(line["data_wait"].get<double>(), r.data_wait);
    // Categories add up to the total after the step; at the peak each is at least its part.
    std::int64_t now = 0, peaks = 0;
    for (const auto& [key, value] : line.items()) {
      if (key.starts_with("memory.")) now += value.get<std::int64_t>();
      if (key.starts_with("memory_peak.")) peaks += value.get<std::int64_t>();
    }
    EXPECT_EQ(now, line["memory_bytes"].get<std::int64_t>());
    EXPECT_GE(peaks, line["memory_step_peak_bytes"].get<std::int64_t>());
    EXPECT_GE(line["memory_peak_bytes"], line["memory_step_peak_bytes"]);
    EXPECT_GT(line["memory.parameters"], 0);
    EXPECT_GT(line["memory.optimizer"], 0);
    EXPECT_GT(line["memory_peak.activations"], 0);
    // Operations take the step's time, and nothing but it.
    double seconds = 0;
    for (const auto& [op, total] : r.ops) seconds += total.seconds;
    EXPECT_LE(seconds, r.seconds);
    covered.push_back(seconds / r.seconds);
    EXPECT_EQ(r.ops.at("optimizer").count, 1);
  }
  // Most of all: single steps of a millisecond may be interrupted between the two clocks.
  std::ranges::sort(covered);
  EXPECT_GT(covered[15], 0.8);
  // Phases end after 14 and 30 steps: an interval never mixes two.
  const auto intervals = lines_of(metrics, "interval");
  std::vector<std::int64_t> ends;
  std::map<std::string, double> sums, expected;
  for (const auto& line : intervals) {
    ends.push_back(line["step"]);
    for (const auto& [key, value] : line.items())
      if (key.starts_with("op_seconds.")) sums[key.substr(11)] += value.get<double>();
  }
  EXPECT_EQ(ends, (std::vector<std::int64_t>{4, 8, 12, 14, 16, 20, 24, 28, 30}));
  for (const auto& report : run.heard.steps)
    for (const auto& [op, total] : report.ops) expected[op] += total.seconds;
  ASSERT_EQ(sums.size(), expected.size());
  for (const auto& [op, seconds] : expected) EXPECT_NEAR(sums.at(op), seconds, 1e-9) << op;

  EXPECT_EQ(lines_of(metrics, "evaluation").size(), 3u);
  const auto end = lines_of(metrics, "end");
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(end[0]["outcome"], "finished");
  EXPECT_EQ(end[0]["weight_hash"], run.result.weight_hash);
  const auto transcripts = lines_of(config.trainer.output_dir / "transcripts.jsonl", "transcript");
  ASSERT_EQ(transcripts.size(), 15u);  // 5 of 12 recordings, three times
  const std::vector<std::string> names{"ab", "cd", "abc", "dab", "bdac"};
  for (std::size_t i = 0; i < 15; ++i) {
    EXPECT_EQ(transcripts[i]["recording"], names[i % 5]);
    EXPECT_EQ(transcripts[i]["reference"], names[i % 5]);
    EXPECT_TRUE(transcripts[i].contains("ctc"));
  }

  const auto files = event_files(config.trainer.output_dir);
  ASSERT_EQ(files.size(), 1u);
  std::map<std::int64_t, float> losses;
  std::map<std::string, int> tags;
  for (const auto& event : read_events(files[0])) {
    for (const auto& [tag, value] : event.scalars) ++tags[tag];
    if (event.scalars.contains("train/loss")) losses[event.step] = event.scalars.at("train/loss");
  }
  ASSERT_EQ(losses.size(), 30u);
  for (const auto& r : run.heard.steps) EXPECT_EQ(losses.at(r.step), static_cast<float>(r.loss));
  EXPECT_EQ(tags["evaluation/ctc_cer"], 3);
  EXPECT_EQ(tags["memory_peak/activations"], 9);
  EXPECT_EQ(tags["milliseconds_per_step/optimizer"], 9);
}

TEST(RunRecord, RepeatedStepsAreSeenOnce) {
  const Folder folder("repeated");
  const auto corpus = write_corpus(folder.path);
  const std::vector<std::string> overrides{"data.validation=" + corpus.string(), "trainer.val_check_interval=6",
                                           "trainer.checkpoint_every_n_steps=5"};
  const RunConfig config = tiny(corpus, folder.path / "run", overrides);
  const auto output = config.trainer.output_dir;
  Recorded first;
  first.heard.stop_at = 13;
  first.train(config);
  // As if it had been killed after step 13: no checkpoint but that of step 10, no line "end", and a line that is half there.
  std::filesystem::remove_all(output / "checkpoints" / "step-000013");
  std::ifstream in(output / "metrics.jsonl");
  std::string text;
  for (std::string line; std::getline(in, line);)
    if (line.find("\"end\"") == line.npos) text += line + '\n';
  std::ofstream(output / "metrics.jsonl") << text << R"({"event":"step","phase":"c)";
  {
    const auto torn = report::read_run(output);
    ASSERT_EQ(torn.steps.size(), 13u);
    EXPECT_EQ(torn.outcome, "");
    ASSERT_EQ(torn.remarks.size(), 1u);
    EXPECT_NE(torn.remarks[0].find("cut off"), std::string::npos) << torn.remarks[0];
  }
  Recorded second;
  second.train(config);
  ASSERT_EQ(second.heard.steps.front().step, 11);

  EXPECT_EQ(lines_of(output / "metrics.jsonl", "step").size(), 13u + 20u);  // nothing that was measured is thrown away
  const auto run = report::read_run(output);
  EXPECT_EQ(run.invocations, 2);
  ASSERT_EQ(run.steps.size(), 30u);
  for (std::size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(run.steps[i], static_cast<std::int64_t>(i) + 1);
    const StepReport& r = i < 10 ? first.heard.steps[i] : second.heard.steps[i - 10];
    EXPECT_EQ(run.column("seconds")->at(i), r.seconds) << "step " << i + 1;
  }
  ASSERT_EQ(run.phases.size(), 2u);
  EXPECT_EQ(run.phases[0].last, 14);
  std::vector<std::int64_t> evaluated;
  for (const auto& evaluation : run.evaluations) evaluated.push_back(evaluation.step);
  EXPECT_EQ(evaluated, (std::vector<std::int64_t>{6, 12, 18, 24, 30, 30}));
  EXPECT_EQ(run.transcripts.size(), 12u);
  EXPECT_EQ(run.outcome, "finished");

  // TensorBoard: a file per invocation; the second says that what the first has from step 11 on is void.
  const auto files = event_files(output);
  ASSERT_EQ(files.size(), 2u);
  const auto before = read_events(files[0]), after = read_events(files[1]);
  EXPECT_EQ(before[1].step, 1);
  ASSERT_TRUE(after[1].session_start);
  EXPECT_EQ(after[1].step, 11);
  for (const auto& event : after) EXPECT_GE(event.step, event.scalars.contains("train/loss") ? 11 : 0);
}

TEST(RunRecord, OpensNothingBeforeItHasTheRun) {
  const Folder folder("second");
  const auto corpus = write_corpus(folder.path);
  const RunConfig config = tiny(corpus, folder.path / "run");
  const RunLock other(config.trainer.output_dir);
  const auto metrics = config.trainer.output_dir / "metrics.jsonl";
  const std::string half = "{\"event\":\"step\",\"st";
  std::ofstream(metrics) << half;  // the other process is in the middle of a line
  Recorded late;
  EXPECT_THROW(late.train(config), Error);
  EXPECT_EQ(read_file(metrics), half);
  EXPECT_TRUE(event_files(config.trainer.output_dir).empty());
  EXPECT_FALSE(std::filesystem::exists(config.trainer.output_dir / "config.toml"));
}

TEST(RunRecord, FilesThatCannotBeWrittenDontEndTraining) {
  const Folder folder("unwritable");
  const auto corpus = write_corpus(folder.path);
  const RunConfig config =
      tiny(corpus, folder.path / "run", {"data.validation=" + corpus.string(), "trainer.val_check_interval=14"});
  std::filesystem::create_directories(config.trainer.output_dir);
  for (const char* name : {"metrics.jsonl", "transcripts.jsonl"})  // a device that is always full
    std::filesystem::create_symlink("/dev/full", config.trainer.output_dir / name);
  Recorded run;
  run.train(config);
  EXPECT_EQ(run.result.outcome, Outcome::finished);
  ASSERT_EQ(run.said.size(), 2u);  // once for each file, not once for each line
  for (const char* part : {"metrics.jsonl", "No space left on device", "waits for the next time"})
    EXPECT_NE(run.said[0].find(part), std::string::npos) << run.said[0];
}

TEST(RunRecord, NamesEveryReasonForDroppingASample) {
  const DropCounts drops{.too_short = 1, .too_long = 10, .failed = 100, .bad_lines = 1000};
  const auto reasons = drops_by_reason(drops);
  // All members are counts: one that is added must get a name.
  EXPECT_EQ(reasons.size() * sizeof(std::int64_t), sizeof(DropCounts));
  std::int64_t sum = 0;
  for (const auto& [reason, count] : reasons) sum += count;
  EXPECT_EQ(sum, 1111);
}

TEST(Spare, SaysOnceThatItLosesAndOnceThatItWorksAgain) {
  std::vector<std::string> said;
  int opened = 0;
  bool broken = true;
  Spare<int> spare(
      "file", [&] { return ++opened, std::make_unique<int>(0); }, [&](const std::string& text) { said.push_back(text); });
  const auto use = [&] {
    spare.use([&](int& writer) {
      require(!broken, "test", "no room");
      ++writer;
    });
  };
  for (int i = 0; i < 20; ++i) use();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("no room"), std::string::npos);
  EXPECT_LT(opened, 8);  // it doesn't try every time
  broken = false;
  for (int i = 0; i < 20; ++i) use();
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[1].find("file is written again"), std::string::npos) << said[1];
}

}  // namespace
}  // namespace chorus
