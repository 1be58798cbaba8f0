// Optimizer steps over flat arrays: one pass that reads the gradient and writes state, master and compute copy.
#pragma once
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

struct AdamWStep {
  double lr, beta1, beta2, eps, weight_decay;
  double correction1, correction2;  ///< 1 - beta^t
  double grad_scale;                ///< factor of the gradient: clipping
};
/// Elements [first, first + count) of master, m, v and grad (wide type) and of value (the same storage as master, or bf16).
void adamw_step(Cpu, const AdamWStep& step, std::int64_t first, std::int64_t count, const Tensor& grad, Tensor& m, Tensor& v, Tensor& master,
                Tensor& value);

struct SgdStep {
  double lr, momentum, weight_decay, grad_scale;
  bool nesterov, first_step;  ///< the first step sets the momentum buffer to the gradient
};
void sgd_step(Cpu, const SgdStep& step, std::int64_t first, std::int64_t count, const Tensor& grad, Tensor& momentum, Tensor& master,
              Tensor& value);

/// Sum of squares of elements [first, first + count), in f64, in chunks of a fixed size added in order.
double sum_of_squares(Cpu, const Tensor& x, std::int64_t first, std::int64_t count);

}  // namespace chorus::kernel
