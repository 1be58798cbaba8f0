// Kernels that move whole rows.
#pragma once
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

/// y[t] = x[ids[t]], zeros where ids[t] is -1. x [m, n], ids i32 [T].
void gather_rows(Cpu, const Tensor& x, const Tensor& ids, Tensor& y);
/// y[i] = (add ? y[i] : 0) + sum over the t with ids[t] = i of x[t], in the order of t. y is of x's type or of wide type.
void scatter_rows(Cpu, const Tensor& x, const Tensor& ids, bool add, Tensor& y);
/// Copies the columns [x_first, x_first + count) of x to those from y_first on of y; equal row counts and types.
void copy_columns(Cpu, const Tensor& x, std::int64_t x_first, std::int64_t count, Tensor& y, std::int64_t y_first);
/// y[s] = mean of rows [offsets[s], offsets[s + 1]) of x, zeros for an empty range; offsets i32 [S + 1], rising.
void segment_mean(Cpu, const Tensor& x, const Tensor& offsets, Tensor& y);
/// dx[r] = dy[s] / length of s for the s that r lies in, zeros outside all of them.
void segment_mean_backward(Cpu, const Tensor& dy, const Tensor& offsets, Tensor& dx);

}  // namespace chorus::kernel
