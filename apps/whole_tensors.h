// Checkpoints hold whole tensors, whatever parts of them the ranks hold.
#pragma once
#include <chorus/parallel/plan.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace chorus {

/// Tensors by their names in checkpoints ("model/llm/norm/weight").
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// The whole of each tensor of `parts`, which are values, masters or optimizer state of the store's parameters, or buffers. All
/// ranks of the model call it. Tensors of which every rank has all are those of `parts` themselves.
NamedTensors whole_tensors(const NamedTensors& parts, const ParamStore& store, const Mesh& mesh);

/// Has `fill` write whole tensors and takes this rank's parts of them into `parts`.
void fill_parts(const NamedTensors& parts, const ParamStore& store,
                const std::function<void(const NamedTensors& wholes)>& fill);

}  // namespace chorus
