#pragma once
#include <chorus/nn/materialize.h>
#include <chorus/parallel/mesh.h>

namespace chorus {

/// Parameters of which each rank of another group than the data-parallel one has a part of the gradient's sum, too: those that
/// are `copy` there, as norms under sequence parallelism. Each rank of the group lists the same parameters in the same order.
struct GradSum {
  Group* group = nullptr;
  std::vector<const ParamStore::Entry*> entries;
};

/// What must still be summed once data-parallel ranks have summed their gradients: parameters that lie as `copy` along an axis
/// of the plan, by axis. The store outlives what is given.
std::vector<GradSum> grad_sums(const ParamStore& store, const Mesh& mesh);

/// Sums the gradients of `sum` over its group, in one call.
void sum_gradients(const ParamStore& store, const GradSum& sum);

}  // namespace chorus
