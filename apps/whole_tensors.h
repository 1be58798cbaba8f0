// Checkpoints hold whole tensors, whatever parts of them the ranks hold.
#pragma once
#include <chorus/nn/materialize.h>
#include <chorus/parallel/mesh.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace chorus {

/// Tensors by their names in checkpoints ("model/llm/norm/weight").
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// What this rank owns of one: of a parameter's master, value or optimizer state [Entry::count]; or a buffer, which every rank
/// has whole.
struct NamedPart {
  std::string name;
  Tensor tensor;
  const ParamStore::Entry* entry = nullptr;  ///< null for a buffer
};

/// The whole of each. All ranks call it. What a rank has all of is the part itself in its parameter's shape.
NamedTensors whole_tensors(const std::vector<NamedPart>& parts, const ParamStore& store, const Mesh& mesh);

/// Has `fill` write whole tensors and takes this rank's parts of them into `parts`. No rank waits for another.
void fill_parts(const std::vector<NamedPart>& parts, const std::function<void(const NamedTensors& wholes)>& fill);

}  // namespace chorus
