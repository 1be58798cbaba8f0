#include <chorus/apps/precision_config.h>
#include <chorus/apps/run_config.h>

namespace chorus {
namespace {

std::optional<DType> type_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  return name == "bf16" || name == "bfloat16" ? DType::bf16 : DType::f32;
}

}  // namespace

DType dtype_of_precision(const std::string& precision) {
  return precision == "fp64" ? DType::f64 : precision == "fp32" ? DType::f32 : DType::bf16;
}

Precision precision_of(const TrainerConfig& trainer, const SalmConfig& model) {
  Precision out;
  out.masters = trainer.precision != "bf16-true";
  if (const auto type = type_of(trainer.lm_head_precision)) {
    UnitPrecision head{model.llm.tie_word_embeddings ? "llm.embedding" : "llm.head", type, std::nullopt, std::nullopt};
    out.units.push_back(std::move(head));
  }
  for (const auto& policy : trainer.mp_policy)
    out.units.push_back(
        {policy.units, type_of(policy.param_dtype), type_of(policy.reduce_dtype), type_of(policy.output_dtype)});
  return out;
}

}  // namespace chorus
