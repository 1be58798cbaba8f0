// Checkpoints hold whole tensors, whatever parts of them the ranks hold.
#pragma once
#include <chorus/nn/materialize.h>
#include <chorus/parallel/mesh.h>

#include <functional>
#include <string>
#include <vector>

namespace chorus {

/// What this rank owns of a tensor: of a parameter's master, value or optimizer state [Entry::count]; or a buffer, which every
/// rank has whole. The name is that in checkpoints ("model/llm/norm/weight").
struct NamedPart {
  std::string name;
  Tensor tensor;
  const ParamStore::Entry* entry = nullptr;                                             ///< null for a buffer
  const Shape& shape() const { return entry ? entry->param->global : tensor.shape(); }  ///< of the whole
};

/// The whole of each of `parts`, one at a time. What the first rank asks for all ranks gather together, while the others serve.
/// An error on one rank, such as too little memory, ends the group: the others are in the same exchange.
class WholeTensors {
 public:
  WholeTensors(Group& world, const std::vector<NamedPart>& parts, const ParamStore& store, const Mesh& mesh)
      : world_(world), parts_(parts), store_(store), mesh_(mesh) {}
  Tensor get(std::size_t part);  ///< the first rank
  void end();                    ///< the first rank, after the last: lets the others go
  void serve();                  ///< the others: until the first one ends

 private:
  Tensor gather(std::size_t part);
  void tell(std::int64_t& part);
  Group& world_;
  const std::vector<NamedPart>& parts_;
  const ParamStore& store_;
  const Mesh& mesh_;
  Tensor given_;  ///< this rank's part of what was gathered last: one that lies in a file goes back there
};

/// Has `fill` write the whole tensor and takes this rank's part of it. No rank waits for another.
void fill_part(const NamedPart& part, const std::function<void(const Tensor& whole)>& fill);

}  // namespace chorus
