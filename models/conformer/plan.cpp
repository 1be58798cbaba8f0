#include <chorus/models/conformer/plan.h>

namespace chorus {

using namespace placement;

std::vector<WrongSize> wrong_heads(const ConformerConfig& config, int tp) {
  if (config.heads % tp == 0) return {};
  return {
      {"heads", "the encoder's heads " + std::to_string(config.heads) + " don't divide over tp_size " + std::to_string(tp)}};
}

Plan conformer_layer_plan(const ConformerConfig& config, const Mesh& mesh, bool sequence_parallel) {
  const Placement rows = sequence_parallel ? shard(0) : same, vector = sequence_parallel ? copy : same;
  const int tp = mesh.axis("tp").size;
  for (const WrongSize& wrong : wrong_heads(config, tp)) fail("plan", wrong.why);
  const std::int64_t head = config.d_model / config.heads;
  const bool relative = config.self_attention_model == "rel_pos";

  Plan plan;
  const auto params = [&plan](const std::string& pattern, ParamPlacement placement) {
    plan.params.push_back({pattern, {placement}});
  };
  params("ff*.norm.*|attention.norm.*|conv.norm.*|norm_out.*", {"tp", vector});
  params("ff*.up.*", {"tp", shard(0)});
  params("ff*.down.weight", {"tp", shard(1)});
  params("attention.q.*|attention.k.*|attention.v.*", {"tp", shard(0), head});
  params("attention.out.weight", {"tp", shard(1), head});
  if (relative) params("attention.pos.weight|attention.pos_bias_*", {"tp", shard(0), head});
  params("conv.pointwise1.*|conv.conv_norm.*|conv.pointwise2.weight", {"tp", copy});
  params("conv.depthwise.weight", {"tp", shard(1)});
  if (config.use_bias) {
    params("conv.depthwise.bias", {"tp", shard(0)});
    params("ff*.down.bias|conv.pointwise2.bias", {"tp", vector});
  }
  if (config.attention_bias) params("attention.out.bias", {"tp", vector});
  plan.ports = {
      {"ff*.up.in|attention.in", "tp", copy}, {"ff*.down.out|attention.out.out", "tp", rows},
      {"conv.pointwise1.in", "tp", shard(0)}, {"conv.depthwise_in", "tp", shard(1)},
      {"conv.depthwise_out", "tp", shard(0)}, {"conv.pointwise2.out", "tp", rows},
  };
  return plan;
}

Plan conformer_plan(const ConformerConfig& config, const Mesh& mesh, bool sequence_parallel) {
  Plan plan;
  plan.params.push_back({"subsampling.*", {{"tp", same}}});
  if (config.final_norm) plan.params.push_back({"norm_final.*", {{"tp", sequence_parallel ? copy : same}}});
  plan.ports = {{"in", "tp", sequence_parallel ? shard(0) : same}, {"out", "tp", same}};
  if (config.layers > 0) plan.add("layers.*", conformer_layer_plan(config, mesh, sequence_parallel));
  return plan;
}

}  // namespace chorus
