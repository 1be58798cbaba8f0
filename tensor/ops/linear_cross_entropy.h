#pragma once
#include <chorus/tensor/autograd/node.h>

namespace chorus {

struct CrossEntropyOptions {
  double scale = 1;            ///< factor of the sum: 1 / (labels of the whole global batch)
  double label_smoothing = 0;  ///< epsilon spread evenly over the whole vocabulary
};
inline constexpr std::int32_t ignored_label = -100;

/// scale * sum over rows with labels[t] != ignored_label of the cross-entropy of softmax(x weight^T) against labels[t]; a
/// wide tensor of shape (). x [T, h], weight [V, h], labels i32 [T]. The logits exist for a block of rows at a time, in
/// the forward pass and again in the backward one; they are never stored whole. Rows that are ignored cost nothing.
/// Throws when a label is outside [0, V). The gradient of weight can be deferred.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels, const CrossEntropyOptions& options);

}  // namespace chorus
