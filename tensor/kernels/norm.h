// Normalisation over the last dim. x, y, dy, dx are [.., n], weight and bias [n] of x's type; statistics and the gradients of
// weight and bias are of wide type. Gradients: `add` keeps what is there, a null tensor is not wanted.
#pragma once
#include <chorus/tensor/kernels/column_target.h>
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

/// y = x * rstd * weight, rstd [rows] = 1 / sqrt(mean(x^2) + eps).
void rms_norm(Cpu, const Tensor& x, const Tensor& weight, double eps, Tensor& y, Tensor& rstd);
void rms_norm(Cuda, const Tensor& x, const Tensor& weight, double eps, Tensor& y, Tensor& rstd);
void rms_norm_backward(Cpu, const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dy, Tensor& dx,
                       ColumnTarget dweight);
void rms_norm_backward(Cuda, const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dy, Tensor& dx,
                       ColumnTarget dweight);

/// y = (x - mean) * rstd * weight + bias; mean, rstd [rows].
void layer_norm(Cpu, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Tensor& y, Tensor& mean,
                Tensor& rstd);
void layer_norm_backward(Cpu, const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                         Tensor& dx, ColumnTarget dweight, ColumnTarget dbias);

/// The same with given statistics by column: mean [n] and, set here, rstd [n] = 1 / sqrt(variance + eps).
void fixed_norm(Cpu, const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight, const Tensor& bias,
                double eps, Tensor& y, Tensor& rstd);
void fixed_norm_backward(Cpu, const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& dy,
                         Tensor& dx, ColumnTarget dweight, ColumnTarget dbias);

}  // namespace chorus::kernel
