// What a dry run says before training, against what training then takes.
#include <chorus/apps/dry_run.h>
#include <gmock/gmock.h>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;
using ::testing::HasSubstr;

/// Three layers of each kind, so that extrapolation has something to do, and wide enough for activations to count.
std::vector<std::string> deeper() {
  return {"model.encoder.layers=3",   "model.encoder.d_model=32",       "model.llm.num_hidden_layers=4",
          "model.llm.hidden_size=32", "model.llm.intermediate_size=64", "batches.global_batch_size=12"};
}

RunConfig config_of(const std::string& kind, const Folder& folder, std::vector<std::string> overrides = {}) {
  const auto corpus = write_corpus(folder.path);
  auto all = deeper();
  if (kind == "ctc" || kind == "llm")
    for (const char* key : {"model.ctc_compressor=false", "model.ctc_posteriors=false"}) all.push_back(key);
  if (kind == "ctc")
    for (const char* key : {"model.decoder=false", "phases=[{name=\"ctc\", steps=12, llm_weight=0, ctc_weight=1}]"})
      all.push_back(key);
  if (kind == "llm")
    for (const char* key : {"model.perception=false", "model.ctc_head=false", "prompt=\"{bos}{answer}{eos}\"", "features={}",
                            "batches={batch_tokens=20}", "phases=[{name=\"text\", steps=12}]"})
      all.push_back(key);
  if (kind == "full" || kind == "selective" || kind == "offloaded") {
    const std::string mode = kind == "selective" ? "selective" : "full";
    for (const std::string model : {"llm", "perception"})
      all.push_back("trainer.activation_checkpointing_" + model + '=' + mode);
  }
  if (kind == "typed")
    for (const char* key : {"trainer.lm_head_precision=fp32",
                            "trainer.mp_policy=[{units=\"llm.layers.*\", output_dtype=\"fp32\"}, {units=\"encoder.layers.1\", "
                            "param_dtype=\"fp32\"}]"})
      all.push_back(key);
  if (kind == "masterless") all.push_back("trainer.allow_bf16_true=true");
  if (kind == "offloaded") all.push_back("trainer.activation_offload_folder=" + (folder.path / "offload").string());
  if (kind == "unused")  // the first phase trains a decoder that it never runs: its gradients are zeros
    all.push_back("phases[0].freeze_params=[]");
  if (kind == "plain" || kind == "full" || kind == "selective" || kind == "offloaded" || kind == "typed" ||
      kind == "masterless")  // no compressor: the decoder reads every row of the encoder
    for (const char* key : {"model.ctc_compressor=false", "model.modality_adapter=conformer", "model.adapter_layers=3",
                            "model.encoder.self_attention_model=rel_pos", "model.encoder.subsampling=dw_striding",
                            "model.encoder.subsampling_conv_channels=8"})
      all.push_back(key);
  all.insert(all.end(), overrides.begin(), overrides.end());
  return tiny(corpus, folder.path / "run", all);
}

class DryRunKinds : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Kinds, DryRunKinds,
                         ::testing::Values(std::pair("salm", "fp32"), std::pair("plain", "fp32"), std::pair("ctc", "fp32"),
                                           std::pair("llm", "fp32"), std::pair("salm", "bf16-mixed"),
                                           std::pair("unused", "fp32"), std::pair("full", "fp32"),
                                           std::pair("selective", "bf16-mixed"), std::pair("offloaded", "fp32"),
                                           std::pair("typed", "bf16-mixed"), std::pair("masterless", "bf16-true")),
                         [](const auto& info) {
                           std::string name = std::string(info.param.first) + '_' + info.param.second;
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(DryRunKinds, EstimatesMemoryWithinTenPercent) {
  const auto [kind, precision] = GetParam();
  const Folder folder(std::string("dry_run_") + kind + precision);
  const RunConfig config =
      config_of(kind, folder, {std::string("trainer.precision=") + precision, "loader.micro_batch_size=5"});
  const DryRun plan = plan_run(config, {});
  EXPECT_FALSE(std::filesystem::exists(config.trainer.output_dir)) << "a dry run writes nothing";

  const auto measured = measure_run(config, 1000, {});
  EXPECT_FALSE(std::filesystem::exists(folder.path / "offload"));
  EXPECT_FALSE(std::filesystem::exists(config.trainer.output_dir));
  ASSERT_EQ(plan.phases.size(), measured.size());
  for (std::size_t p = 0; p < measured.size(); ++p) {
    const auto& estimate = plan.phases[p];
    const std::string what = estimate.name + '\n' + comparison_text(plan, measured);
    const double step = estimate.fixed.total + estimate.step.total;
    EXPECT_NEAR(step, measured[p].use.total, 0.1 * measured[p].use.total) << what;
    EXPECT_NEAR(estimate.run_peak, measured[p].run_peak, 0.1 * measured[p].run_peak) << what;
    const auto of = [&](Category category) {
      const auto i = static_cast<std::size_t>(category);
      return std::pair(estimate.fixed.of[i] + estimate.step.of[i], measured[p].use.of[i]);
    };
    for (const Category category : {Category::parameters, Category::optimizer}) {
      const auto [planned, found] = of(category);
      EXPECT_EQ(planned, found) << name(category) << ' ' << what;
    }
    const auto [planned_gradients, found_gradients] = of(Category::gradients);
    EXPECT_NEAR(planned_gradients, found_gradients, 0.02 * found_gradients) << what;
    const auto [planned, found] = of(Category::activations);
    // What a compressor leaves of the sound depends on the weights, and fourteen steps of CTC are not enough for one item a
    // letter, which the estimate takes.
    const bool compresses =
        (std::string_view(kind) == "salm" || std::string_view(kind) == "unused") && config.phases[p].llm_weight > 0;
    EXPECT_NEAR(planned, found, (compresses ? 0.25 : 0.02) * found) << what;
    EXPECT_GT(found, 0) << what;
  }
}

struct DryRunLayout {
  const char* name;
  int ranks;
  std::vector<std::string> overrides;
};
class DryRunRanks : public ::testing::TestWithParam<DryRunLayout> {};
INSTANTIATE_TEST_SUITE_P(
    Layouts, DryRunRanks,
    ::testing::Values(DryRunLayout{"dp2", 2, {}}, DryRunLayout{"dp3_buckets", 3, {"parallel.ddp.bucket_size=2000"}},
                      DryRunLayout{"tp2", 2, {"parallel.tp_size=2"}},
                      DryRunLayout{"zero1_dp2", 2, {"parallel.sharding=optimizer"}},
                      DryRunLayout{"zero2_dp3", 3, {"parallel.sharding=gradients"}},
                      DryRunLayout{"fsdp_dp2", 2, {"parallel.sharding=full"}},
                      DryRunLayout{"tp2_full",
                                   2,
                                   {"parallel.tp_size=2", "trainer.activation_checkpointing_llm=full",
                                    "trainer.activation_checkpointing_perception=full"}},
                      DryRunLayout{"tp2_sp_dp2", 4, {"parallel.tp_size=2", "parallel.sequence_parallel=true"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(DryRunRanks, EstimatesTheMemoryOfARank) {
  const Folder folder(std::string("dry_run_") + GetParam().name);
  const RunConfig config = config_of("plain", folder, GetParam().overrides);
  const DryRun plan = plan_run(config, {}, GetParam().ranks);
  EXPECT_FALSE(std::filesystem::exists(config.trainer.output_dir)) << "a dry run writes nothing";
  const auto measured = measure_run(config, 1000, {}, GetParam().ranks);
  ASSERT_EQ(plan.phases.size(), measured.size());
  for (std::size_t p = 0; p < measured.size(); ++p) {
    const auto& estimate = plan.phases[p];
    const double step = estimate.fixed.total + estimate.step.total, found = measured[p].use.total;
    EXPECT_NEAR(step, found, 0.1 * found) << estimate.name << '\n' << comparison_text(plan, measured);
    for (const Category category : {Category::parameters, Category::optimizer}) {
      const auto i = static_cast<std::size_t>(category);
      EXPECT_EQ(estimate.fixed.of[i] + estimate.step.of[i], measured[p].use.of[i]) << name(category);
    }
  }
}

TEST(DryRun, TellsWhatTheFirstRankHolds) {
  const Folder folder("dry_run_held");
  const RunConfig config = config_of("salm", folder, {"parallel.tp_size=2"});
  const DryRun plan = plan_run(config, {}, 6);
  EXPECT_EQ(plan.layout.describe(), "TP2 DP3");
  EXPECT_THAT(parameter_text(plan), HasSubstr("held by rank 0"));
  EXPECT_THAT(parameter_text(plan), ::testing::ContainsRegex("llm.layers.3.mlp.down.weight +joint +.32, 64. +2048 +.32, 32."));
  EXPECT_THAT(parameter_text(plan_run(config_of("salm", folder), {})), ::testing::Not(HasSubstr("held by")));
  EXPECT_THROW(plan_run(config, {}, 3), Error);
}

TEST(DryRun, TellsParametersPhasesAndBatches) {
  const Folder folder("dry_run_text");
  const RunConfig config = config_of("salm", folder, {"batches.max_seconds=0.6"});
  const DryRun plan = plan_run(config, {});
  std::int64_t all = 0, first = 0;
  for (const auto& parameter : plan.parameters) {
    ASSERT_EQ(parameter.trains.size(), 2u);
    EXPECT_TRUE(parameter.trains[1]) << parameter.path;
    EXPECT_EQ(parameter.trains[0], !parameter.path.starts_with("llm") && !parameter.path.starts_with("projection"))
        << parameter.path;
    all += parameter.shape.numel();
    first += parameter.trains[0] ? parameter.shape.numel() : 0;
  }
  EXPECT_THAT(parameter_text(plan), HasSubstr("llm.layers.3.mlp.down.weight"));
  EXPECT_THAT(parameter_text(plan), HasSubstr("(32, 64)"));
  EXPECT_THAT(parameter_text(plan), ::testing::ContainsRegex("all +" + std::to_string(all) + "\n"));
  EXPECT_THAT(parameter_text(plan), ::testing::ContainsRegex("trained in phase ctc +" + std::to_string(first) + "\n"));
  EXPECT_EQ(plan.phases[1].first_epoch, plan.phases[0].epochs) << "a phase starts with an epoch of its own";
  EXPECT_EQ(plan.phases[0].epochs, 14) << "a batch an epoch";
  EXPECT_THAT(batch_text(plan), HasSubstr("4 too long"));
  EXPECT_THAT(memory_text(plan), HasSubstr("peak of the run so far"));
  EXPECT_LE(plan.cache_bytes, 1e9);
  EXPECT_GT(plan.loader_bytes, 0);
}

TEST(DryRun, LayersThatAreFrozenApartAreNotExtrapolated) {
  const Folder folder("dry_run_frozen");
  const std::vector<std::string> frozen{"phases[1].freeze_params=[\"encoder\", \"llm.layers.0\"]",
                                        "phases[1].prevent_freeze_params=[]"};
  const RunConfig config = config_of("salm", folder, frozen);
  const DryRun plan = plan_run(config, {});
  const auto measured = measure_run(config, 1000, {});
  EXPECT_NEAR(plan.phases[1].step.total + plan.phases[1].fixed.total, measured[1].use.total, 0.1 * measured[1].use.total)
      << comparison_text(plan, measured);
}

}  // namespace
}  // namespace chorus
