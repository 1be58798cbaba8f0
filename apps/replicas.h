// Ranks that hold the same part of a model must hold the same bits of it; nothing would show it if they didn't.
#pragma once
#include <chorus/nn/materialize.h>
#include <chorus/parallel/group/group.h>

namespace chorus {

/// All ranks of `group`, which hold the model together and in copies, call it after step `step`. Values (and f32 masters) of
/// parameters that they own, all or slices, and buffers are compared by their XXH3-128. An error on all ranks alike, where
/// those that hold the same part of a tensor don't hold the same bits: it names the first such tensor by path, the step, and
/// ranks of the world by what they hold.
void check_replicas(const ParamStore& store, Group& group, std::int64_t step);

}  // namespace chorus
