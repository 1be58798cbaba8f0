// The report of runs that were written by hand: what it says is what their lines say.
#include <chorus/apps/commands.h>
#include <chorus/apps/report/config_view.h>
#include <chorus/apps/report/page.h>
#include <chorus/apps/report/series.h>
#include <chorus/core/error.h>
#include <gtest/gtest-spi.h>
#include <unistd.h>

#include "report_checker.h"

namespace chorus {
namespace {
using namespace testing;
using nlohmann::ordered_json;

class Report : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(root); }
  void TearDown() override { std::filesystem::remove_all(root); }
  std::filesystem::path root = std::filesystem::temp_directory_path() / ("chorus_report_test." + std::to_string(getpid()));

  /// A run of two phases; its numbers differ from step to step and from salt to salt.
  struct Options {
    int steps = 700;
    double salt = 0;
    bool llm = true, ctc = true, evaluations = true, end = true, hears = true;
    int ranks = 0;  ///< 0: a run of before they were recorded
    std::string phase = "joint", text = "press one for help", heard = "press won fur help please";
  };
  std::filesystem::path write_run(const std::string& name, const Options& o) {
    const auto folder = root / name;
    std::filesystem::create_directories(folder);
    std::ofstream metrics(folder / "metrics.jsonl"), transcripts(folder / "transcripts.jsonl");
    ordered_json start{{"event", "start"}, {"step", 0}, {"total_steps", o.steps}, {"time", 1.7e9}, {"parameters", 3'440'000}};
    if (o.ranks > 0) start["ranks"] = o.ranks, start["layout"] = o.ranks == 1 ? "1 rank" : "TP2 SP DP2";
    metrics << start << '\n';
    for (int step = 1; step <= o.steps; ++step) {
      const bool first = step <= o.steps / 3;
      const double x = step + o.salt, loss = 3 / std::sqrt(x) + 0.1 * std::sin(x);
      ordered_json line{{"event", "step"},
                        {"phase", first ? "ctc" : o.phase},
                        {"step", step},
                        {"loss", loss},
                        {"llm_loss", o.llm && !first ? loss * 1.1 : 0.0},
                        {"ctc_loss", o.ctc ? loss * 0.9 : 0.0},
                        {"grad_norm", step == 5 ? ordered_json("nan") : ordered_json(1 + std::abs(std::sin(x)) + 50 / x)},
                        {"lr", 1e-3 * step / o.steps},
                        {"tokens_per_s", 6000 + 500 * std::sin(3 * x)},
                        {"gflops", 120 + std::sin(x)},
                        {"peak_percent", 40 + std::sin(x)},
                        {"seconds", 0.0385 + 0.001 * std::sin(x)},
                        {"data_wait", step % 50 == 0 ? 0.004 : 0.0},
                        {"memory_bytes", 50'000'000},
                        {"memory_peak_bytes", 160'000'000 + step},
                        {"memory_step_peak_bytes", 120'000'000 + step},
                        {"memory.parameters", 20'000'000},
                        {"memory_peak.parameters", 20'000'000},
                        {"memory_peak.activations", 101'000'000 + step}};
      metrics << line << '\n';
      if (step % 100 == 0)
        metrics << ordered_json{{"event", "interval"},
                                {"phase", o.phase},
                                {"step", step},
                                {"steps", 100},
                                {"seconds", 3.85 + o.salt / 1e3},
                                {"data_wait", 0.008},
                                {"op_seconds.matmul nt", 1.7},
                                {"op_flops.matmul nt", 4.1e11},
                                {"op_seconds.step", 0.2},
                                {"op_seconds.data", 0.01},
                                {"dropped.too_short", 3},
                                {"dropped.a_new_reason", 1}}
                << '\n';
      if (o.evaluations && step % 200 == 0) {
        metrics << ordered_json{{"event", "evaluation"},
                                {"phase", o.phase},
                                {"step", step},
                                {"recordings", 2},
                                {"seconds", 1.5},
                                {"llm_perplexity", o.llm ? 7.5 : 1.0},
                                {"bits_per_byte", 1.75},
                                {"llm_loss", o.llm ? 1.0 / step : 0.0},
                                {"ctc_loss", o.ctc ? 2.0 / step : 0.0},
                                {"llm_cer", o.llm && o.hears ? ordered_json(50.0 / step) : ordered_json("nan")},
                                {"llm_wer", o.llm && o.hears ? ordered_json(90.0 / step) : ordered_json("nan")},
                                {"ctc_cer", o.ctc ? ordered_json(60.0 / step) : ordered_json("nan")},
                                {"ctc_wer", o.ctc ? ordered_json(95.0 / step) : ordered_json("nan")}}
                << '\n';
        for (const char* recording : {"first", "second"}) {
          if (!o.hears) break;
          ordered_json line{{"event", "transcript"}, {"step", step}, {"recording", recording}, {"reference", o.text}};
          if (o.llm) line["llm"] = o.heard;
          if (o.ctc) line["ctc"] = o.text;
          transcripts << line << '\n';
        }
      }
    }
    if (o.end)
      metrics << ordered_json{{"event", "end"}, {"step", o.steps}, {"outcome", "finished"}, {"dropped.too_short", 3}} << '\n';
    std::ofstream(folder / "config.toml")
        << "prompt = \"{audio}  # {answer}\"  # a/demo.toml:1:10\n\n[trainer]\nseed = " << 1 + static_cast<int>(o.salt)
        << "  # command line\ntrace = false  # default\n\n"
        << "[[phases]]\nsteps = 3  # a/demo.toml:9:1\n\n[phases.schedule]\nlr = 0.001  # default\n"
        << "# batches is not set  # default\n\n[[phases]]\nsteps = 4  # a/demo.toml:12:1\n";
    return folder;
  }
  static std::string page_of(const std::vector<std::filesystem::path>& folders) {
    std::vector<report::Run> runs;
    for (const auto& folder : folders) runs.push_back(report::read_run(folder));
    return report::page(runs);
  }
  static bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }
};

TEST_F(Report, SaysHowARunWasLaidOutOnRanks) {
  const auto said = [&](int ranks) { return page_of({write_run("run", {.steps = 5, .ranks = ranks})}); };
  EXPECT_TRUE(has(said(4), " · 4 ranks: TP2 SP DP2 · "));
  EXPECT_FALSE(has(said(1), "rank"));
  EXPECT_FALSE(has(said(0), "rank"));
}

TEST_F(Report, EveryFigureIsWhatTheLinesSay) {
  const auto folder = write_run("run", {});
  const std::string html = page_of({folder});
  EXPECT_GT(check_figures(html, {folder}), 150);
  EXPECT_GT(check_curves(html, {folder}), 2000);
  check_tags(html);
  for (const char* part :
       {"Held-out CER", "8.3 %", "Memory by category", "matmul nt", "a new reason", "demo.toml:9", "phases[1]"})
    EXPECT_TRUE(has(html, part)) << part;
}

TEST_F(Report, TheCheckItselfNoticesAWrongFigure) {
  const auto folder = write_run("run", {});
  std::string html = page_of({folder});
  const std::string figure = "data-key=\"mean:evaluation.llm_cer:600-600\" data-scale=\"0.01\">8.3 %";
  ASSERT_TRUE(has(html, figure));
  html.replace(html.find(figure) + figure.size() - 5, 3, "8.5");
  EXPECT_NONFATAL_FAILURE(check_figures(html, {folder}), "is shown as 8.5 %");
}

TEST_F(Report, NeedsNothingButItself) {
  const std::string html = page_of({write_run("run", {})});
  for (const char* reference : {"http:", "https:", "src=", "@import", "url(", "<link", "<img"})
    EXPECT_FALSE(has(html, reference)) << reference;
  EXPECT_TRUE(has(html, "prefers-color-scheme: dark") && has(html, "width=device-width"));
  // Whoever can't see the curves hears what they say and can open them as tables.
  std::size_t pictures = 0, labels = 0, tables = 0;
  for (std::size_t at = 0; (at = html.find("<svg ", at)) != html.npos; ++at, ++pictures)
    labels += html.substr(at, html.find('>', at) - at).find("role=\"img\" aria-label=\"") != std::string::npos;
  for (std::size_t at = 0; (at = html.find("Table of values", at)) != html.npos; ++at) ++tables;
  EXPECT_EQ(pictures, 8u);
  EXPECT_EQ(labels, pictures);
  EXPECT_EQ(tables, pictures);
}

TEST_F(Report, TextCannotBreakOut) {
  const std::string evil = "</script><script>alert(1)</script>\"'&<b>\xC3\x28";
  std::string name = "<b>\"&'";
  Options options;
  options.phase = "</script><script>alert(2)</script>";
  options.text = "a <i>b</i> & c";
  options.heard = "<script>alert(3)</script> \" c";
  const auto folder = write_run(name, options);
  std::ofstream(folder / "config.toml") << "[trainer]\nname = \"" << evil << "\"  # command line\n";
  const std::string html = page_of({folder});
  EXPECT_FALSE(has(html, "<script>alert")) << html.substr(html.find("<script>alert") - 80, 200);
  EXPECT_FALSE(has(html, "<i>b"));
  EXPECT_FALSE(has(html, "<b>\"&"));
  EXPECT_TRUE(has(html, "&lt;b&gt;&quot;&amp;&#39;"));
  EXPECT_TRUE(has(html, "\xEF\xBF\xBD("));  // the byte that is no UTF-8
  check_tags(html);
}

TEST_F(Report, RunsThatArentWholeAreReportedAsFarAsTheyGo) {
  Options going{.steps = 7, .evaluations = false, .end = false};
  auto folder = write_run("going", going);
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << "garbage\n{\"event\":\"step\",\"phase\":\"jo";
  std::filesystem::remove(folder / "transcripts.jsonl");
  std::filesystem::remove(folder / "config.toml");
  std::string html = page_of({folder});
  for (const char* part :
       {"Not finished", "7 of 7 steps", "line 9 is left out: it is no JSON object", "line 10 is cut off", "no evaluation yet"})
    EXPECT_TRUE(has(html, part)) << part;
  for (const char* part : {"Held-out transcripts", "Configuration", "Held-out loss</h3>"})
    EXPECT_FALSE(has(html, part)) << part;
  EXPECT_GT(check_figures(html, {folder}), 30);
  check_tags(html);

  folder = write_run("one", {.steps = 1, .evaluations = false});
  check_tags(html = page_of({folder}));
  check_figures(html, {folder});
}

TEST_F(Report, RunsOfOnePartHaveItsFiguresOnly) {
  const auto ctc = write_run("ctc", {.llm = false}), llm = write_run("llm", {.ctc = false});
  std::string html = page_of({ctc});
  EXPECT_TRUE(has(html, "CTC head, after step 600") && !has(html, "decoder"));
  EXPECT_GT(check_figures(html, {ctc}), 100);
  html = page_of({llm});
  EXPECT_TRUE(has(html, "decoder, after step 600") && !has(html, "CTC head"));
  EXPECT_GT(check_figures(html, {llm}), 100);

  // A decoder that hears nothing transcribes nothing.
  const auto text = write_run("text", {.ctc = false, .hears = false});
  html = page_of({text});
  EXPECT_TRUE(has(html, "Held-out perplexity") && has(html, "Bits per byte") && !has(html, "CER"));
  EXPECT_GT(check_figures(html, {text}), 100);
}

TEST_F(Report, ASingleEvaluationIsATable) {
  const auto once = write_run("once", {.steps = 250});
  std::string html = page_of({once});
  EXPECT_TRUE(has(html, "characters wrong</th>") && !has(html, "Held-out error rates"));
  EXPECT_GT(check_figures(html, {once}), 100);
  check_tags(html);
  // Recordings are those of the first run that has any.
  const auto none = write_run("none", {.steps = 250, .evaluations = false});
  html = page_of({none, once});
  EXPECT_TRUE(has(html, "<span>first</span>") && has(html, "<span>second</span>"));
  check_figures(html, {none, once});
  check_tags(html);
}

TEST_F(Report, SeveralRunsAreCompared) {
  const std::vector<std::filesystem::path> folders{write_run("a", {}), write_run("b", {.steps = 400, .salt = 2}),
                                                   write_run("c", {.steps = 300, .salt = 5, .evaluations = false})};
  const std::string html = page_of(folders);
  EXPECT_GT(check_figures(html, folders), 200);
  EXPECT_GT(check_curves(html, folders), 3000);
  check_tags(html);
  const std::string differences = html.substr(html.find("id=\"configuration\""));
  EXPECT_TRUE(has(differences, "trainer.seed") && has(differences, "<code>3</code>") && has(differences, "<code>6</code>"));
  EXPECT_FALSE(has(differences, "phases[0].steps"));
}

TEST_F(Report, FoldersWithoutARunAreNamed) {
  const auto error = [&](const std::filesystem::path& folder) -> std::string {
    try {
      run_report({.runs = {folder}, .out = root / "x.html"});
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_TRUE(has(error(root / "none"), (root / "none").string() + " is no folder"));
  EXPECT_TRUE(has(error(root), root.string() + " has no metrics.jsonl"));
  std::filesystem::create_directories(root / "empty");
  std::ofstream(root / "empty" / "metrics.jsonl") << R"({"event":"start","step":0})" << '\n';
  EXPECT_TRUE(has(error(root / "empty"), "holds no step yet"));
  EXPECT_FALSE(std::filesystem::exists(root / "x.html"));
}

TEST_F(Report, SettingsKeepTheirPlacesAndOrigins) {
  const auto settings = report::read_settings(report::read_run(write_run("run", {})).config);
  ASSERT_EQ(settings.size(), 7u);
  EXPECT_EQ(settings[0].value, "\"{audio}  # {answer}\"");
  EXPECT_EQ(settings[0].origin, "a/demo.toml:1:10");
  EXPECT_EQ(settings[1].path(), "trainer.seed");
  EXPECT_EQ(settings[4].path(), "phases[0].schedule.lr");
  EXPECT_EQ(settings[5].path(), "phases[0].schedule.batches");
  EXPECT_EQ(settings[5].value, "");
  EXPECT_EQ(settings[6].path(), "phases[1].steps");
}

TEST(Ticks, AreRoundAndFew) {
  EXPECT_EQ(report::linear_ticks(0, 10, 5), (std::vector<double>{0, 5, 10}));
  EXPECT_EQ(report::linear_ticks(0, 7, 5), (std::vector<double>{0, 2, 4, 6}));
  EXPECT_EQ(report::linear_ticks(-3, 3, 5), (std::vector<double>{-2, 0, 2}));
  EXPECT_EQ(report::linear_ticks(4, 4, 5), (std::vector<double>{4}));
  EXPECT_EQ(report::log_ticks(0.9, 120, 8), (std::vector<double>{1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(report::log_ticks(0.9, 1200, 5), (std::vector<double>{1, 10, 100, 1000}));
  EXPECT_EQ(report::log_ticks(1e-9, 1e9, 4), (std::vector<double>{1e-5, 1, 1e5}));
  for (double low = -7; low < 7; low += 0.37)
    for (double size = 1e-6; size < 1e6; size *= 3.7) {
      const auto ticks = report::linear_ticks(low, low + size, 5);
      EXPECT_TRUE(ticks.size() >= 1 && ticks.size() <= 5) << low << ' ' << size;
      EXPECT_TRUE(ticks.front() >= low - 1e-6 * size && ticks.back() <= low + size * (1 + 1e-6));
    }
}

}  // namespace
}  // namespace chorus
