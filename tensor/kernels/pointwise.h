// Element-wise kernels.
#pragma once
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

/// y = add ? y + x : x, any floating types. Sizes must agree.
void accumulate(Cpu, const Tensor& x, bool add, Tensor& y);
void accumulate(Cuda, const Tensor& x, bool add, Tensor& y);

}  // namespace chorus::kernel
