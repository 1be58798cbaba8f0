// What training says of a rank's memory beside the formulas, and the limit on it.
#include <chorus/apps/dry_run.h>
#include <chorus/apps/layout_plan.h>
#include <chorus/apps/run_record.h>
#include <gmock/gmock.h>

#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;
using ::testing::HasSubstr;

std::filesystem::path write_texts(const std::filesystem::path& folder) {
  std::vector<ManifestEntry> entries;
  for (int i = 0; i < 24; ++i) {
    entries.push_back({.audio = {}, .text = std::string(static_cast<std::size_t>(4 + i % 9), static_cast<char>('a' + i % 4))});
    entries.back().id = std::to_string(i);
  }
  write_manifest(folder / "texts.jsonl", entries);
  return folder / "texts.jsonl";
}

/// A decoder alone, whose state is much more than what a batch takes.
RunConfig decoder_run(const Folder& folder, const std::string& run, std::vector<std::string> more = {}) {
  std::vector<std::string> all{"prompt=\"{bos}{answer}{eos}\"",
                               "features={}",
                               "spec_augment={}",
                               "batches={batch_tokens=80}",
                               "model.perception=false",
                               "model.ctc_head=false",
                               "model.ctc_compressor=false",
                               "model.ctc_posteriors=false",
                               "model.llm.hidden_size=96",
                               "model.llm.num_hidden_layers=12",
                               "model.llm.num_attention_heads=6",
                               "model.llm.intermediate_size=200",
                               "phases=[{name=\"text\", steps=4}]"};
  all.insert(all.end(), more.begin(), more.end());
  return tiny(write_texts(folder.path), folder.path / run, all);
}

TEST(MemoryLimit, EightRanksTrainWhatOneIsRefused) {
  const Folder folder("memory_limit");
  const StateBytes state = plan_layout(decoder_run(folder, "plan"), 1, {}).totals[0].of_place[0][0].state.held;
  const double limit = state.total() / 2;
  const std::vector<std::string> limited{"trainer.memory_limit_gigabytes=" + std::to_string(limit / 1e9)};
  auto sharded = limited;
  sharded.push_back("parallel.sharding=full");
  Heard heard;
  EXPECT_EQ(train_on_threads(decoder_run(folder, "ranks", sharded), heard.hooks(), 8).outcome, Outcome::finished);
  ASSERT_EQ(heard.steps.size(), 4u);
  EXPECT_LT(static_cast<double>(heard.steps.back().memory_peak), limit);

  Heard refused;
  try {
    train(decoder_run(folder, "one", limited), refused.hooks());
    FAIL() << "one rank took twice as much as it may";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_THAT(text, HasSubstr("would exceed the limit of"));
    for (const char* category : {"\nparameters: ", "\ngradients: ", "\noptimizer: ", "\nactivations: "})
      EXPECT_THAT(text, HasSubstr(category)) << text;
  }
  EXPECT_TRUE(refused.steps.empty());
}

struct Told {
  const char* name;
  int ranks;
  std::vector<std::string> overrides;
};
class MemoryTold : public ::testing::TestWithParam<Told> {};
INSTANTIATE_TEST_SUITE_P(
    Layouts, MemoryTold,
    ::testing::Values(
        Told{"one", 1, {}}, Told{"bf16", 1, {"trainer.precision=bf16-mixed"}}, Told{"ddp", 2, {"loader.micro_batch_size=4"}},
        Told{"zero1", 3, {"parallel.sharding=optimizer", "loader.micro_batch_size=2"}},
        Told{"zero2", 2, {"parallel.sharding=gradients"}},
        Told{"fsdp_bf16", 3, {"parallel.sharding=full", "trainer.precision=bf16-mixed"}},
        Told{"fsdp_one_at_a_time", 2, {"parallel.sharding=full", "parallel.fsdp.overlap=false"}},
        Told{"fsdp_deferred", 2, {"parallel.sharding=full", "parallel.fsdp.defer_grad_sync=true", "loader.micro_batch_size=2"}},
        Told{"fsdp_kept", 2, {"parallel.sharding=full", "parallel.fsdp.reshard_after_forward=never"}},
        Told{"tp", 2, {"parallel.tp_size=2"}}, Told{"full", 1, {"trainer.activation_checkpointing_llm=full"}},
        Told{"selective", 1, {"trainer.activation_checkpointing_llm=selective"}}),
    [](const auto& info) { return std::string(info.param.name); });

/// Before training and after its first steps: formulas are the same, and what they stand beside is what was measured.
TEST_P(MemoryTold, IsWhatFormulasSay) {
  const Folder folder(std::string("memory_told_") + GetParam().name);
  const RunConfig config = decoder_run(folder, "run", GetParam().overrides);
  const DryRun plan = plan_run(config, {}, GetParam().ranks);
  std::vector<MemoryReport> told;
  Heard heard;
  TrainerHooks hooks = heard.hooks();
  hooks.memory = [&](const MemoryReport& report) { told.push_back(report); };
  train_on_threads(config, hooks, GetParam().ranks);
  ASSERT_EQ(told.size(), 1u);
  const MemoryReport &report = told[0], &planned = plan.phases[0].report;
  EXPECT_EQ(report.step, FirstSteps::enough);
  EXPECT_EQ(planned.step, 0);
  ASSERT_EQ(report.lines.size(), planned.lines.size());
  const auto line = [&](const MemoryReport& of, const std::string& name) -> const MemoryLine& {
    const auto found = std::ranges::find(of.lines, name, &MemoryLine::name);
    EXPECT_NE(found, of.lines.end()) << name;
    return *found;
  };
  for (const char* name : {"parameters", "gradients", "optimizer"}) {
    const MemoryLine& found = line(report, name);
    EXPECT_EQ(found.formula, line(planned, name).formula) << name;
    EXPECT_GT(*found.formula, 0) << name;
    // Under sharding the table's and the head's gradients are whole until they are summed, as is that of one layer.
    const bool exact =
        name != std::string("gradients") || config.parallel.sharding == "none" || config.parallel.sharding == "optimizer";
    if (exact)
      EXPECT_NEAR(*found.formula, *found.found, 0.02 * *found.found) << memory_report_text(report);
    else
      EXPECT_LE(*found.formula, *found.found) << memory_report_text(report);
  }
  std::array<double, category_count> most{};
  for (int s = 0; s < FirstSteps::enough; ++s)
    for (std::size_t i = 0; i < category_count; ++i)
      most[i] = std::max(most[i], static_cast<double>(heard.steps[static_cast<std::size_t>(s)].memory_peak_of[i]));
  for (std::size_t i = 0; i < category_count; ++i)
    EXPECT_EQ(*line(report, std::string(name(static_cast<Category>(i)))).found, most[i]);
  // What layers keep is most of what is there when backward begins; the rest is of the head and its loss.
  const MemoryLine& activations = line(report, "activations");
  EXPECT_LE(*activations.formula, *activations.found) << memory_report_text(report);
  EXPECT_GT(*activations.formula, 0.5 * *activations.found) << memory_report_text(report);
  const MemoryLine& communication = line(report, "communication");
  EXPECT_EQ(communication.formula.has_value(), config.parallel.sharding != "none");
  if (communication.formula) {
    const bool kept = config.parallel.fsdp.reshard_after_forward == "never";  // some go before all gradients are there
    EXPECT_NEAR(*communication.formula, *communication.found, (kept ? 0.1 : 0.02) * *communication.found)
        << memory_report_text(report);
  }
  EXPECT_GT(*line(report, "decoder, quoted").formula, 0);
}

TEST(MemoryReport, IsOnePerPhaseAndInTheRecord) {
  const Folder folder("memory_record");
  const RunConfig config =
      tiny(write_corpus(folder.path), folder.path / "run", {"phases[0].steps=2", "phases[0].schedule.warmup_steps=1"});
  RunRecord record(config.trainer.output_dir, {.matrix_peak = 1e9, .config = ""}, [](const std::string&) {});
  std::vector<MemoryReport> told;
  TrainerHooks hooks;
  hooks.start = [&](const StartReport& report) { record.start(report); };
  hooks.memory = [&](const MemoryReport& report) {
    told.push_back(report);
    record.memory(report);
  };
  train(config, hooks);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].step, 2) << "the phase has no more";
  EXPECT_EQ(told[0].rows.decoder, 0) << "nothing runs the decoder";
  EXPECT_EQ(told[1].step, 2 + FirstSteps::enough);
  EXPECT_GT(told[1].rows.decoder, told[1].rows.longest_decoder);
  EXPECT_THAT(memory_report_text(told[1]), HasSubstr("memory of phase joint, bytes of a rank, the most of its first steps"));
  EXPECT_THAT(memory_report_text(told[1]), ::testing::ContainsRegex("optimizer +[0-9.]+ .iB +[0-9.]+ .iB +[0-9]\\.[0-9]+\n"));

  std::ifstream in(config.trainer.output_dir / "metrics.jsonl");
  std::vector<nlohmann::json> lines;
  for (std::string text; std::getline(in, text);)
    if (auto json = nlohmann::json::parse(text); json["event"] == "memory") lines.push_back(std::move(json));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1]["phase"], "joint");
  EXPECT_EQ(lines[1]["step"], told[1].step);
  EXPECT_EQ(lines[1]["encoder_rows"], told[1].rows.encoder);
  EXPECT_EQ(lines[1]["memory_report.optimizer.formula"], std::llround(*told[1].lines[2].formula));
  EXPECT_EQ(lines[1]["memory_report.total.measured"], std::llround(*told[1].lines.back().found));
  EXPECT_FALSE(lines[1].contains("memory_report.total.formula"));
}

TEST(MemoryReport, CountsLayersThatKeepSomething) {
  const Folder folder("memory_walked");
  const auto corpus = write_corpus(folder.path);
  const auto kept = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"model.encoder.layers=3", "model.llm.num_hidden_layers=4", "phases[1].keep=[]"});
    const DryRun plan = plan_run(tiny(corpus, folder.path / "run", more), {});
    const auto& lines = plan.phases[1].report.lines;
    const auto of = [&](const std::string& name) {
      const auto found = std::ranges::find(lines, name, &MemoryLine::name);
      return found == lines.end() ? 0 : *found->formula;
    };
    return std::pair(of("activations") - of("decoder, counted"), of("decoder, counted"));
  };
  const auto [encoder, decoder] = kept({});
  EXPECT_GT(encoder, 0);
  EXPECT_GT(decoder, 0);
  EXPECT_EQ(kept({"phases[1].freeze_params=[\"encoder\", \"ctc_head\"]"}), (std::pair(0.0, decoder)));
  EXPECT_EQ(kept({"phases[1].freeze_params=[\"encoder.subsampling\", \"encoder.layers.[01]\"]"}),
            (std::pair(encoder / 3, decoder)));
  EXPECT_EQ(kept({"phases[1].freeze_params=[\"encoder\", \"ctc_head\", \"projection\", \"llm.embedding\", \"llm.layers.0\"]"}),
            (std::pair(0.0, decoder * 3 / 4)));
}

}  // namespace
}  // namespace chorus
