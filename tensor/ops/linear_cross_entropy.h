#pragma once
#include <chorus/tensor/autograd/node.h>

namespace chorus {

struct CrossEntropyOptions {
  double scale = 1;            ///< factor of the sum: 1 / (labels of the whole global batch)
  double label_smoothing = 0;  ///< epsilon in [0, 1] spread evenly over the whole vocabulary (Szegedy et al. 2016)
};
inline constexpr std::int32_t ignored_label = -100;

/// scale * sum over rows with labels[t] != ignored_label of the cross-entropy of softmax(x weight^T) against labels[t]; a
/// wide tensor of shape (). x [T, h], weight [V, h], labels i32 [T]. Rows that are ignored cost nothing. Throws when a label
/// is outside [0, V). The logits exist for one block of rows at a time and once: where gradients are wanted the forward
/// pass goes on to their products right away (three products; computing the logits again would be a fourth) and keeps
/// dx of the labelled rows and dweight, both wide, for the backward pass to scale by its cotangent. So the gradient of
/// weight can be deferred in the sense that it reaches the sink later; its cost has been paid by then.
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& labels, const CrossEntropyOptions& options);

}  // namespace chorus
