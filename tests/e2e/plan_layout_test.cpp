// What `chorus plan layout` says of ranks is what they hold when they are there.
#include <chorus/apps/layout_plan.h>
#include <chorus/apps/run_folder.h>
#include <chorus/apps/salm_builder.h>
#include <chorus/models/salm/plan.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/group/threads.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;
using ::testing::HasSubstr;

/// Two layers of each kind, one of decoder heads' keys for two ranks, and sizes that two doesn't divide.
RunConfig planned_run(const Folder& folder, std::vector<std::string> more = {}) {
  std::vector<std::string> overrides{"parallel.tp_size=2", "model.encoder.layers=2", "model.llm.num_hidden_layers=2",
                                     "model.llm.num_key_value_heads=1", "model.llm.intermediate_size=33"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return tiny(write_corpus(folder.path), folder.path / "run", overrides);
}

/// With single spaces: columns are as wide as their widest cell.
std::string squeezed(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  return out;
}

struct Planned {
  const char* name;
  std::vector<std::string> overrides;
  int data_ranks = 2;
};
class PlanLayout : public ::testing::TestWithParam<Planned> {};
INSTANTIATE_TEST_SUITE_P(
    Layouts, PlanLayout,
    ::testing::Values(Planned{"tp", {}}, Planned{"sp", {"parallel.sequence_parallel=true"}},
                      Planned{"bf16", {"trainer.precision=bf16-mixed"}},
                      Planned{
                          "bf16_fastconformer",
                          {"trainer.precision=bf16-mixed", "model.encoder.subsampling=dw_striding",
                           "model.encoder.subsampling_conv_channels=8", "model.encoder.self_attention_model=rel_pos",
                           "model.encoder.conv_norm=batch_norm", "model.modality_adapter=conformer", "model.adapter_layers=2"}},
                      // Slices of three ranks are uneven.
                      Planned{"zero1", {"parallel.sharding=optimizer"}, 3},
                      Planned{"zero2_bf16", {"parallel.sharding=gradients", "trainer.precision=bf16-mixed"}, 3},
                      Planned{"fsdp_sp", {"parallel.sharding=full", "parallel.sequence_parallel=true"}, 3},
                      Planned{"fsdp_bf16", {"parallel.sharding=full", "trainer.precision=bf16-mixed", "parallel.tp_size=1"}, 3},
                      Planned{"hsdp", {"parallel.sharding=full", "parallel.dp_replicate_size=2", "parallel.tp_size=1"}, 6}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(PlanLayout, IsWhatRanksHold) {
  const Folder folder(std::string("plan_layout_") + GetParam().name);
  const RunConfig config = planned_run(folder, GetParam().overrides);
  const Sharding sharding = sharding_of(config.parallel.sharding);
  const int ranks = config.parallel.tp() * GetParam().data_ranks;
  const LayoutPlan plan = plan_layout(config, ranks, {});
  EXPECT_FALSE(std::filesystem::exists(config.trainer.output_dir)) << "a plan writes nothing";
  const Tokenizer tokenizer(make_tokenizer(config, read_manifest(config.data.train)));
  run_ranks(ranks, {}, [&](Group& world) {
    Mesh mesh(world, mesh_shape(config.parallel.sizes(), world.size()));
    const auto rank = static_cast<std::size_t>(world.rank());
    const auto place = static_cast<std::size_t>(plan.place_of[rank]), slice = static_cast<std::size_t>(plan.slice_of[rank]);
    EXPECT_EQ(plan.place_of[rank], mesh.axis("tp").rank);
    EXPECT_EQ(plan.slice_of[rank], sharding == Sharding::none ? 0 : mesh.axis("dp_shard").rank);
    for (std::size_t p = 0; p < config.phases.size(); ++p) {
      const PlannedTotal& total = plan.totals[p].of_place[place][slice];
      Context context;
      const auto& phase = config.phases[p];
      const auto built = build_salm(context, config, tokenizer, {phase.freeze_params, phase.prevent_freeze_params}, mesh);
      const ParamStore& store = built->store;
      const Optimizer state(config.optimizer, store);
      const MemoryStats held = context.memory.stats();
      const auto bytes = [](const MemoryStats& stats, Category of) {
        return static_cast<double>(stats.current[static_cast<std::size_t>(of)]);
      };
      EXPECT_EQ(bytes(held, Category::parameters), total.state.held.values);
      EXPECT_EQ(bytes(held, Category::optimizer), total.state.held.optimizer);

      const auto parallel = make_data_parallel(built->store, mesh, config.parallel.data_parallel(), [&] {
        return loss_term(loss_without_rows(built->model, context, dtype_of_precision(config.trainer.precision)), mesh);
      });
      EXPECT_EQ(bytes(context.memory.stats(), Category::parameters), total.state.held.values);
      // A step without rows: the gradients of all that trains are zeros.
      parallel->start_step();
      parallel->backward(Tensor(), true);
      parallel->finish_step();
      const MemoryStats after = context.memory.stats();
      if (sharding == Sharding::none) {
        double gradients = 0;
        for (const auto& leaf : store.leaves) gradients += static_cast<double>(leaf->sink.grad.bytes());
        EXPECT_EQ(gradients, total.state.held.gradients);
      } else if (sharding == Sharding::optimizer) {  // of gradients the sums of its slices are left
        EXPECT_EQ(bytes(after, Category::communication), total.state.second_gradients);
      } else {
        EXPECT_EQ(bytes(after, Category::gradients), total.state.held.gradients);
      }
      std::int64_t trained = 0, all = 0, planned = 0;
      for (const auto* entries : {&store.trainable, &store.frozen})
        for (const auto& entry : *entries) {
          const std::int64_t part = entry.param->box.size.numel();
          all += part;
          trained += entries == &store.trainable ? part : 0;
        }
      for (const auto& part : plan.parts) planned += part.count * part.boxes[place].size.numel();
      EXPECT_EQ(trained, total.trained);
      EXPECT_EQ(all, total.parameters);
      EXPECT_EQ(planned, total.parameters) << "the table's rows make up the total";
    }
  });
}

TEST(PlanLayoutText, SaysWhoHoldsWhat) {
  const Folder folder("plan_layout_text");
  const LayoutPlan plan = plan_layout(planned_run(folder, {"parallel.sequence_parallel=true"}), 4, {});
  const std::string all = squeezed(layout_text(plan, -1));
  EXPECT_THAT(all, HasSubstr("4 ranks: TP2 SP DP2\n"));
  EXPECT_THAT(all, HasSubstr("these sizes need at least 2 ranks"));
  EXPECT_THAT(all, HasSubstr("{0 2} {1 3}\n"));
  EXPECT_THAT(all, HasSubstr(" llm.layers.*.mlp.up.weight 2 (33, 16) tp: shard(0) (16, 16) at 0, (17, 16) at 1\n"));
  EXPECT_THAT(all, HasSubstr(" llm.layers.*.attention.k.weight 2 (8, 16) tp.rep: copy (8, 16)\n"));
  EXPECT_THAT(all, HasSubstr(" llm.layers.*.mlp_norm.weight 2 (16) tp: copy (16)\n"));
  const std::string third = squeezed(layout_text(plan, 3));
  EXPECT_THAT(third, HasSubstr(" (33, 16) tp: shard(0) (17, 16) [16:33, 0:16]\n"));
  EXPECT_THAT(third, HasSubstr("{2 3}\n"));
  EXPECT_THAT(third, ::testing::Not(HasSubstr("{0 1}")));
  EXPECT_THAT(third, ::testing::Not(HasSubstr("on disk")));
  EXPECT_THAT(layout_text(plan_layout(planned_run(folder, {"trainer.optimizer_offload_folder=disk"}), 4, {}), 3),
              HasSubstr("optimizer state, on disk"));

  const auto json = nlohmann::json::parse(layout_json(plan, 3));
  EXPECT_EQ(json.at("layout"), "TP2 SP DP2");
  EXPECT_EQ(json.at("groups").at("tp"), (nlohmann::json{{0, 1}, {2, 3}}));
  EXPECT_EQ(json.at("place_of_rank"), (nlohmann::json{{"3", 1}}));
  const auto up = std::ranges::find(json.at("parameters"), "llm.layers.*.mlp.up.weight",
                                    [](const nlohmann::json& one) { return one.at("path").get<std::string>(); });
  ASSERT_NE(up, json.at("parameters").end());
  EXPECT_EQ(up->at("held").at("1"), (nlohmann::json{{"begin", {16, 0}}, {"size", {17, 16}}}));
}

TEST(PlanLayoutText, RefusesAsTheTrainerDoes) {
  const Folder folder("plan_layout_refused");
  const auto refusal = [&](int ranks, std::vector<std::string> more) -> std::string {
    try {
      plan_layout(planned_run(folder, std::move(more)), ranks, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(3, {}), HasSubstr("3 ranks are no multiple of tp_size * cp_size * pp_size"));
  EXPECT_THAT(refusal(3, {"parallel.tp_size=3"}), HasSubstr("heads 2 don't divide over tp_size 3"));
  EXPECT_EQ(refusal(1, {"parallel.tp_size=1"}), "");
}

}  // namespace
}  // namespace chorus
