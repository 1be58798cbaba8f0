// Cross-entropy of rows of logits, and the pieces of its gradient that aren't products.
#pragma once
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

/// losses[r] = (1 - smoothing) * (-log p[labels[r]]) + smoothing * mean over v of (-log p[v]), p = softmax(logits[r]).
/// `logits` [R, V] (f32 or f64) are used up. With `gradient` [R, V] (any floating type, may be `logits` itself), also
/// d losses[r] / d logits[r] = p - (1 - smoothing) * onehot(labels[r]) - smoothing / V.
void cross_entropy(Cpu, Tensor& logits, std::span<const std::int32_t> labels, double smoothing, Tensor* gradient,
                   std::span<double> losses);

/// y = add ? y + factor * x : factor * x for tensors of one size, any floating types.
void scaled(Cpu, const Tensor& x, double factor, bool add, Tensor& y);

/// y[index[r]] = factor * x[r], zeros in all other rows; index is i32 and names no row twice.
void scatter_scaled(Cpu, const Tensor& x, std::span<const std::int32_t> index, double factor, Tensor& y);

}  // namespace chorus::kernel
