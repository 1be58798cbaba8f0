// The trace of a training run can be opened, and the files for people agree with each other.
#include <chorus/apps/report/page.h>
#include <chorus/apps/run_record.h>

#include <cstdlib>

#include "e2e/tiny_run.h"
#include "report_checker.h"
#include "tfevents_reader.h"
#include "trace_checker.h"

namespace chorus {
namespace {
using namespace testing;

class TraceRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = new Folder("trace");
    const auto corpus = write_corpus(folder->path);
    const RunConfig config =
        tiny(corpus, folder->path / "run",
             {"data.validation=" + corpus.string(), "trainer.val_check_interval=10", "trainer.trace=true"});
    run = config.trainer.output_dir;
    RunRecord record(run, {.matrix_peak = 1e9, .interval = 10, .transcripts = 50, .config = canonical_toml(config)},
                     [](const std::string& text) { ADD_FAILURE() << text; });
    TrainerHooks hooks;
    hooks.start = [&](const StartReport& report) { record.start(report); };
    hooks.step = [&](const StepReport& report) { record.step(report); };
    hooks.evaluation = [&](const EvaluationReport& report) { record.evaluation(report); };
    record.end(train(config, hooks));
  }
  static void TearDownTestSuite() { delete folder; }
  static inline Folder* folder = nullptr;
  static inline std::filesystem::path run;
};

TEST_F(TraceRun, NestsAndHoldsManySteps) {
  const auto trace = nlohmann::json::parse(std::ifstream(run / "trace.json"));
  const auto wrong = check_trace(trace);
  EXPECT_TRUE(wrong.empty()) << wrong.size() << " faults, the first: " << wrong.front();
  std::map<std::string, int> count;
  for (const auto& event : trace["traceEvents"]) ++count[event["name"]];
  EXPECT_EQ(count["step"], 30);
  EXPECT_EQ(count["optimizer"], 30);
  EXPECT_EQ(count["data"], 30);
  EXPECT_GT(count["attention.backward"], 15);
  EXPECT_EQ(trace["otherData"]["left_out"], 0);
  EXPECT_EQ(trace["otherData"]["spans"].get<std::size_t>() + 1, trace["traceEvents"].size());
}

TEST_F(TraceRun, ItsReportSaysWhatItsLinesSay) {
  const auto data = report::read_run(run);
  EXPECT_TRUE(data.remarks.empty());
  const std::string html = report::page(std::span(&data, 1));
  EXPECT_GT(check_figures(html, {run}), 100);
  EXPECT_GT(check_curves(html, {run}), 200);
  check_tags(html);
}

TEST_F(TraceRun, TensorBoardReadsItsEvents) {
  // CHORUS_PYTHON: a Python that has TensorBoard.
  const char* given = std::getenv("CHORUS_PYTHON");
  const std::string python = given ? given : "python3";
  if (std::system((python + " -c 'import tensorboard' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << python << " has no tensorboard (pip install tensorboard, then CHORUS_PYTHON=/path/to/python)";
  // A second file whose end is cut off, of an invocation that took the run back to step 20.
  {
    EventFile file(run, 21, 2e9);
    const Scalar loss{"train/loss", 1234};
    file.scalars(21, 2e9, std::span(&loss, 1));
    file.scalars(22, 2e9, std::span(&loss, 1));
    std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) - 3);
  }
  const std::string output = (folder->path / "readback.json").string();
  ASSERT_EQ(
      std::system(
          (python + " " + CHORUS_SOURCE_DIR + "/tests/e2e/tensorboard_readback.py " + run.string() + " >" + output).c_str()),
      0);
  const auto read = nlohmann::json::parse(std::ifstream(output));
  std::map<std::int64_t, double> expected;
  for (const auto& line : json_lines(run / "metrics.jsonl"))
    if (line["event"] == "step" && line["step"] <= 20) expected[line["step"]] = line["loss"];
  expected[21] = 1234;
  const auto& losses = read["scalars"]["train/loss"];
  ASSERT_EQ(losses.size(), expected.size());
  for (const auto& point : losses) EXPECT_EQ(point[1].get<double>(), static_cast<float>(expected.at(point[0])));
  EXPECT_EQ(read["scalars"]["evaluation/ctc_cer"].size(), 2u);  // after 10 and 20: later ones were taken back
  EXPECT_TRUE(read["scalars"].contains("memory_peak/activations"));
  EXPECT_NE(read["texts"]["config"].get<std::string>().find("val_check_interval = 10"), std::string::npos);
  std::filesystem::remove(event_files(run).back());
}

TEST(TraceChecker, FindsWhatReadersStumbleOver) {
  const auto x = [](const char* name, double ts, double dur, int tid = 0) {
    return nlohmann::json{{"ph", "X"}, {"name", name}, {"pid", 0}, {"tid", tid}, {"ts", ts}, {"dur", dur}};
  };
  const auto be = [](const char* phase, const char* name, double ts) {
    return nlohmann::json{{"ph", phase}, {"name", name}, {"pid", 0}, {"tid", 0}, {"ts", ts}};
  };
  const auto faults = [](std::vector<nlohmann::json> events) { return check_trace({{"traceEvents", events}}).size(); };
  EXPECT_EQ(faults({x("inner", 1.001, 2), x("outer", 1, 9), x("next", 10, 1), x("same", 10, 1)}), 0u);
  EXPECT_EQ(faults({x("a", 0, 5), x("b", 3, 5)}), 1u);      // overlap in part
  EXPECT_EQ(faults({x("a", 0, 5), x("b", 3, 5, 1)}), 0u);   // on tracks of their own
  EXPECT_EQ(faults({x("a", 0, 5), x("b", 3, 2.001)}), 1u);  // by a nanosecond
  EXPECT_EQ(faults({be("B", "a", 0), be("B", "b", 1), be("E", "b", 2), be("E", "a", 3)}), 0u);
  EXPECT_EQ(faults({be("B", "a", 0), be("B", "b", 1), be("E", "a", 2), be("E", "b", 3)}), 2u);
  EXPECT_EQ(faults({be("E", "a", 0)}), 1u);
  EXPECT_EQ(faults({be("B", "a", 0)}), 1u);
  EXPECT_EQ(faults({x("a", 0, -1)}), 1u);
}

}  // namespace
}  // namespace chorus
