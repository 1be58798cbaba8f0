#pragma once
#include <chorus/tensor/autograd/node.h>

namespace chorus {

/// y[.., out] = x[.., in] weight[out, in]^T (+ bias[out]). The gradients of weight and bias can be deferred.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace chorus
