#pragma once
#include <chorus/nn/materialize.h>
#include <chorus/parallel/group/group.h>

namespace chorus {

/// Euclidean norm of all gradients; every logical element counts once, by its owner: squares are summed in f64, then over
/// the group. Not finite if any gradient is not.
double grad_norm(const ParamStore& store, Group& group);

/// Factor that brings the norm down to `max_norm` (1 when it is below, or when max_norm is 0).
double clip_factor(double norm, double max_norm);

}  // namespace chorus
