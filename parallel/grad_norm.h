// One global gradient norm, and what a step does with it.
#pragma once
#include <chorus/nn/materialize.h>
#include <chorus/parallel/group/group.h>

namespace chorus {

/// Euclidean norm of all gradients; every logical element counts once, by its owner (`Param::counted`): squares are summed in
/// f64, then over each of `groups` in turn: the ranks that share out the store, those that hold the model together. (Other
/// ranks have equal gradients by now.) Equal on all ranks, bit for bit. Not finite if any gradient is not.
double grad_norm(const ParamStore& store, std::span<Group* const> groups);
inline double grad_norm(const ParamStore& store, Group& group) {
  Group* const groups[] = {&group};
  return grad_norm(store, groups);
}

/// Factor that brings the norm down to `max_norm` (1 when it is below, or when max_norm is 0).
double clip_factor(double norm, double max_norm);

enum class StepVerdict : std::uint8_t { update, skip, stop };
/// What becomes of a step: nothing is updated where its gradient norm or its loss isn't finite. `skipped` of at most
/// `most_skipped` steps of the run were left out so far. Norm and loss are sums over all ranks, so all judge alike.
StepVerdict judge_step(double norm, double loss, std::int64_t skipped, std::int64_t most_skipped);

}  // namespace chorus
