// Optimizer steps over flat arrays: one pass that reads the gradient and writes state, master and compute copy.
#pragma once
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

/// Elements [first, first + count) of the flat arrays: one parameter.
struct UpdateRange {
  std::int64_t first, count;
  double weight_decay;
  const void* grad;  ///< count elements of the masters' type
};

struct AdamWStep {
  double lr, beta1, beta2, eps;
  double correction1, correction2;  ///< 1 - beta^t
  double grad_scale;                ///< factor of the gradient: clipping
};
/// Updates master, m and v with the gradients (all of one wide type) and writes value (the same storage as master, or bf16).
void adamw_step(Cpu, const AdamWStep& step, std::span<const UpdateRange> ranges, Tensor& m, Tensor& v, Tensor& master,
                Tensor& value);

struct SgdStep {
  double lr, momentum, grad_scale;
  bool nesterov, first_step;  ///< the first step sets the momentum buffer to the gradient
};
void sgd_step(Cpu, const SgdStep& step, std::span<const UpdateRange> ranges, Tensor& momentum, Tensor& master, Tensor& value);

/// Sum of the squares of all elements, in f64, in chunks of a fixed size added in order.
double sum_of_squares(Cpu, std::span<const Tensor> tensors);

}  // namespace chorus::kernel
