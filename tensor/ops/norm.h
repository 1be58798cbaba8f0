// Normalisation over the last dim, with statistics in the compute type.
#pragma once
#include <chorus/tensor/autograd/node.h>

namespace chorus {

/// x / sqrt(mean(x^2) + eps) * weight, x [.., n], weight [n] (Zhang and Sennrich 2019).
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);
/// (x - mean) / sqrt(var + eps) * weight + bias, x [.., n]; biased variance (Ba et al. 2016).
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
/// (x - mean[c]) / sqrt(variance[c] + eps) * weight[c] + bias[c] with given statistics, wide(dtype) [n], taken as constants.
Tensor fixed_norm(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight, const Tensor& bias, double eps);

}  // namespace chorus
