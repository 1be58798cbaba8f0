// Types of values, of sums over ranks and of activations, unit by unit. The choices are those of PyTorch FSDP2's
// MixedPrecisionPolicy.
#pragma once
#include <chorus/nn/module.h>

#include <map>

namespace chorus {

/// Types of the units whose path matches. What isn't said is left to the rules after it, and then to the model's type.
struct UnitPrecision {
  std::string units;            ///< path_matches on "llm.layers.3", "llm.head"; or "root": what lies in no unit
  std::optional<DType> param;   ///< what the unit's parameters are computed with, and its activations; not for the root
  std::optional<DType> reduce;  ///< in which ranks that have different samples sum its gradients
  std::optional<DType> output;  ///< of what it gives to what comes after it; not for the root
};

/// How a model whose values are of one type is stored and summed.
struct Precision {
  bool masters = true;  ///< beside bf16 values f32 ones that the optimizer updates; false: it rounds each update to bf16
  std::vector<UnitPrecision> units = {};  ///< for each type the first that matches and says it counts
};

/// What came of it for a unit. Between units activations have the model's type, unless `output` says otherwise.
struct UnitTypes {
  DType values{}, reduce{}, output{};
};

namespace detail {
/// By path; "" is the root. Types of which one is wider than the other's wide type (f64 beside f32), patterns that match no
/// unit, and types of the root's values are errors.
std::map<std::string, UnitTypes> types_of_units(const std::vector<std::pair<std::string, Unit*>>& units, DType dtype,
                                                const Precision& precision);
/// Tells units in which type they compute and what they give.
void tell_units(const std::vector<std::pair<std::string, Unit*>>& units, const std::map<std::string, UnitTypes>& types);
}  // namespace detail

}  // namespace chorus
