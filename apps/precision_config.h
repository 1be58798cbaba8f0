// Types of a run's values, as keys. Names as in NeMo (trainer.precision) and PyTorch FSDP2 (mp_policy).
#pragma once
#include <chorus/core/config.h>
#include <chorus/nn/precision.h>

#include <string>
#include <vector>

namespace chorus {

/// Types of some units; "" leaves a type to later entries and to trainer.precision.
struct UnitPrecisionConfig {
  std::string units, param_dtype, reduce_dtype, output_dtype;
  template <class V>
  void fields(V&& v) {
    const auto types = one_of("", "fp32", "float32", "bf16", "bfloat16");
    v("units", units,
      "paths of units, with * for any characters and | between alternatives: llm.layers.*, llm.head; or root: what lies in "
      "none",
      not_empty());
    v("param_dtype", param_dtype, "of their parameters and activations", types);
    v("reduce_dtype", reduce_dtype, "in which data-parallel ranks sum their gradients; fp32 if nothing is said", types);
    v("output_dtype", output_dtype, "of what they give to what comes after them; the head's logits are as it computes them",
      types);
  }
  template <class Check>
  void rules(Check&& check) const {
    check(!units.empty(), "units", "is missing: expected paths of units");
    check(!(param_dtype.empty() && reduce_dtype.empty() && output_dtype.empty()), "units",
          "has none of param_dtype, reduce_dtype and output_dtype");
    check(units != "llm.head" || output_dtype.empty(), "output_dtype",
          "has no effect on llm.head, whose logits are as it computes them");
    check(units != "root" || (param_dtype.empty() && output_dtype.empty()), "units",
          "root has the type of trainer.precision; only its reduce_dtype can be chosen");
  }
};

struct TrainerConfig;
struct SalmConfig;

/// The model's type; of what its units have otherwise, see `precision_of`.
DType dtype_of_precision(const std::string& precision);
/// What trainer.precision, lm_head_precision and mp_policy say. The first of these that says a type of a unit counts, in the
/// order lm_head_precision, mp_policy.
Precision precision_of(const TrainerConfig& trainer, const SalmConfig& model);

}  // namespace chorus
