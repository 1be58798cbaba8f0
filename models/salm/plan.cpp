#include <chorus/models/conformer/plan.h>
#include <chorus/models/llm/plan.h>
#include <chorus/models/salm/plan.h>

namespace chorus {

Plan salm_plan(const SalmConfig& config, const Mesh& mesh, bool sequence_parallel) {
  using namespace placement;
  Plan plan;
  if (config.perception) {
    plan.add("encoder", conformer_plan(config.encoder, mesh, sequence_parallel));
    if (config.ctc_head) plan.params.push_back({"ctc_head.*", {{"tp", same}}});
    if (config.decoder) {
      plan.params.push_back({"projection.*", {{"tp", same}}});
      if (config.projection_norm) plan.params.push_back({"projection_norm.*", {{"tp", same}}});
      if (config.modality_adapter == "conformer") {
        plan.add("adapter.*", conformer_layer_plan(config.encoder, mesh, sequence_parallel));
        plan.ports.push_back({"adapter_in", "tp", sequence_parallel ? shard(0) : same});
        plan.ports.push_back({"adapter_out", "tp", same});
      }
    }
  }
  if (config.decoder) plan.add("llm", llm_plan(config.llm, mesh, sequence_parallel));
  return plan;
}

Tensor loss_without_rows(Salm& model, Context& context, DType dtype, double llm_weight, double ctc_weight) {
  SalmBatch batch;
  const std::int64_t mels = model.encoder ? model.config.encoder.features : 0;
  batch.features = Tensor::empty(context, {0, mels}, dtype);
  batch.frames = make_rows(context, {}, {});
  // Counts that switch the losses on; there are no rows to divide by them.
  const SalmLossOptions options{.counts = {1, 1},
                                .llm_weight = model.llm ? llm_weight : 0,
                                .ctc_weight = model.ctc_head ? ctc_weight : 0,
                                .corruption = {}};
  return model.loss(batch, options, {.training = true}).total;
}

void check_salm_layouts(Salm& model, Context& context, DType dtype, const Precision& precision) {
  check_layouts(
      model, context, dtype, [&] { loss_without_rows(model, context, dtype); }, precision);
}

}  // namespace chorus
