// Optimizer steps over flat arrays: one pass that reads the gradient and writes state, master and compute copy.
#pragma once
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

/// `count` elements of one parameter, whose state lies at [first, first + count) of the flat arrays.
struct UpdateRange {
  std::int64_t first, count;
  double weight_decay;
  const void* grad;  ///< of the state's type, as are masters
  void* master;      ///< null: there is none, each update of `value` is rounded
  bf16* value;       ///< the copy to compute with; null: the master itself
};

struct AdamWStep {
  double lr, beta1, beta2, eps;
  double correction1, correction2;  ///< 1 - beta^t
  double grad_scale;                ///< factor of the gradient: clipping
};
/// Updates masters, m and v with the gradients (all of one wide type) and writes the copies.
void adamw_step(Cpu, const AdamWStep& step, std::span<const UpdateRange> ranges, Tensor& m, Tensor& v);

struct SgdStep {
  double lr, momentum, grad_scale;
  bool nesterov, first_step;  ///< the first step sets the momentum buffer to the gradient
};
void sgd_step(Cpu, const SgdStep& step, std::span<const UpdateRange> ranges, Tensor& momentum);

/// Sum of the squares of all elements, in f64, in chunks of a fixed size added in order.
double sum_of_squares(Cpu, std::span<const Tensor> tensors);

}  // namespace chorus::kernel
