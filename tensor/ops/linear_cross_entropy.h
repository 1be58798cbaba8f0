#pragma once
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/ops/table_part.h>

#include <functional>
#include <limits>
#include <span>

namespace chorus {

/// What the loss of one row needs to know of some of its logits. As it stands: of none.
struct RowStatistics {
  double max = -std::numeric_limits<double>::infinity();
  double exps = 0;    ///< sum of exp(logit - max)
  double sum = 0;     ///< of the logits
  double chosen = 0;  ///< the label's logit, where that is among them
};
/// Of the logits of both, which share none.
RowStatistics merge(const RowStatistics& a, const RowStatistics& b);

struct CrossEntropyOptions {
  double scale = 1;            ///< factor of the sum: 1 / (labels of the whole global batch)
  double label_smoothing = 0;  ///< epsilon in [0, 1] spread evenly over the whole vocabulary (Szegedy et al. 2016)
  TablePart part = {};         ///< which classes `weight` holds
  /// Of a part: replaces the statistics of this part's classes, a block of rows at a time, by those of all classes. Every part
  /// calls it equally often, with the same rows; what comes back must be equal in all parts.
  std::function<void(std::span<RowStatistics>)> combine = {};
};
inline constexpr std::int32_t ignored_label = -100;

/// scale * sum over rows with labels[t] != ignored_label of the cross-entropy of softmax(x weight^T) against labels[t]; a
/// wide tensor of shape (). x [T, h], weight [V, h], labels i32 [T]. Rows that are ignored cost nothing. Throws when a label
/// is outside [0, V). The logits exist for one block of rows at a time and once: where gradients are wanted the forward
/// pass goes on to their products right away (three products; computing the logits again would be a fourth) and keeps
/// dx of the labelled rows and dweight, both wide, for the backward pass to scale by its cotangent. So the gradient of
/// weight can be deferred in the sense that it reaches the sink later; its cost has been paid by then.
/// With `options.part` the weight holds some of the classes (also none), each part gives the whole loss, dweight is that of
/// the classes here, and dx their share: the gradient of x is the sum over parts.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels, const CrossEntropyOptions& options);

}  // namespace chorus
