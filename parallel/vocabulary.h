// Loss over a vocabulary that lies in parts on the ranks of an axis.
#pragma once
#include <chorus/parallel/mesh.h>
#include <chorus/tensor/ops/linear_cross_entropy.h>

#include <functional>

namespace chorus {

/// `linear_cross_entropy` whose weight is this rank's part of the classes: per block of rows each rank's maximum, sum of
/// exponentials, sum of logits and wanted logit are gathered and merged in order of rank. Every rank gets the same loss; the
/// gradient of x is a sum over ranks.
std::function<Tensor(Tensor, Tensor, Tensor, const CrossEntropyOptions&)> vocabulary_parallel_loss(const Axis& axis);

}  // namespace chorus
