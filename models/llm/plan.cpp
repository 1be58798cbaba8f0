#include <chorus/models/llm/plan.h>
#include <chorus/parallel/vocabulary.h>

namespace chorus {

std::vector<WrongSize> wrong_heads(const LlmConfig& config, int tp) {
  const int heads = config.num_attention_heads, kv_heads = config.num_key_value_heads;
  const std::string over = " don't divide over tp_size " + std::to_string(tp);
  std::vector<WrongSize> wrong;
  if (heads % tp != 0) wrong.push_back({"num_attention_heads", "num_attention_heads " + std::to_string(heads) + over});
  if (kv_heads % tp != 0 && tp % kv_heads != 0)
    wrong.push_back(
        {"num_key_value_heads", "num_key_value_heads " + std::to_string(kv_heads) + over + ", nor the other way round"});
  return wrong;
}

Plan llm_plan(const LlmConfig& config, const Mesh& mesh, bool sequence_parallel) {
  using namespace placement;
  const Axis& tp = mesh.axis("tp");
  const Placement rows = sequence_parallel ? shard(0) : same;  // of activations between the products
  const Placement vector = sequence_parallel ? copy : same;    // of parameters that meet them
  const int kv_heads = config.num_key_value_heads;
  const std::int64_t head = config.head_size();
  for (const WrongSize& wrong : wrong_heads(config, tp.size)) fail("plan", wrong.why);

  Plan plan;
  std::vector<ParamPlacement> kv{{"tp", shard(0), head}};
  if (kv_heads % tp.size != 0) {  // each is repeated on tp / kv_heads neighbours, which share its query heads
    plan.factors.push_back({"tp", kv_heads, "tp.kv", "tp.rep"});
    kv = {{"tp.kv", shard(0), head}, {"tp.rep", copy}};
  }
  plan.params = {
      {"embedding.weight|head.weight", {{"tp", shard(0)}}},
      {"norm.weight|layers.*.attention_norm.weight|layers.*.mlp_norm.weight", {{"tp", vector}}},
  };
  plan.ports = {
      {"embedding.out", "tp", same}, {"in", "tp", rows},         {"out", "tp", same},
      {"loss_in", "tp", copy},       {"logits_out", "tp", same},
  };
  if (config.num_hidden_layers > 0) {
    const auto add = [&plan](const char* pattern, std::vector<ParamPlacement> placements) {
      plan.params.push_back({pattern, std::move(placements)});
    };
    add("layers.*.attention.q.weight", {{"tp", shard(0), head}});
    add("layers.*.attention.k.weight|layers.*.attention.v.weight", kv);
    add("layers.*.attention.out.weight", {{"tp", shard(1), head}});
    add("layers.*.mlp.gate.weight|layers.*.mlp.up.weight", {{"tp", shard(0)}});
    add("layers.*.mlp.down.weight", {{"tp", shard(1)}});
    plan.ports.push_back({"layers.*.attention.in|layers.*.mlp.in", "tp", copy});
    plan.ports.push_back({"layers.*.attention.out.out|layers.*.mlp.down.out", "tp", rows});
  }
  if (tp.size > 1) plan.slot("loss_core", vocabulary_parallel_loss(tp));
  return plan;
}

}  // namespace chorus
