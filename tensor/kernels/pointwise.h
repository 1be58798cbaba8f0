// Element-wise kernels. Operands of one call have one floating type and equal sizes unless said otherwise.
#pragma once
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

/// y = add ? y + x : x, any floating types.
void accumulate(Cpu, const Tensor& x, bool add, Tensor& y);
void accumulate(Cuda, const Tensor& x, bool add, Tensor& y);

enum class Unary {
  scale,  ///< factor * x
  relu,   ///< max(x, 0)
  silu,   ///< x * sigmoid(x)
};
/// y = op(x); y may be x.
void unary(Cpu, Unary op, const Tensor& x, double factor, Tensor& y);
void unary(Cuda, Unary op, const Tensor& x, double factor, Tensor& y);

enum class Binary {
  add_scaled,     ///< a + factor * b
  mul,            ///< a * b
  relu_backward,  ///< a is relu's output, b the gradient of it: a > 0 ? b : 0
  silu_backward,  ///< a is silu's input, b the gradient of its output: b * s * (1 + a * (1 - s)), s = sigmoid(a)
};
/// y = op(a, b); y may be a or b.
void binary(Cpu, Binary op, const Tensor& a, const Tensor& b, double factor, Tensor& y);
void binary(Cuda, Binary op, const Tensor& a, const Tensor& b, double factor, Tensor& y);

/// y[r, c] = x[r, c] + row[c]; x [.., n], row [n].
void add_row(Cpu, const Tensor& x, const Tensor& row, Tensor& y);
/// sums[c] = (add ? sums[c] : 0) + sum over r of x[r, c]; sums [n] is of wide(x's type).
void column_sum(Cpu, const Tensor& x, bool add, Tensor& sums);
void column_sum(Cuda, const Tensor& x, bool add, Tensor& sums);
/// Sum of all elements into y of shape (), in a fixed order.
void total(Cpu, const Tensor& x, Tensor& y);

/// The gates of [T, 2n] rows that hold left, then right.
enum class Gate {
  swiglu,  ///< silu(left) * right
  glu,     ///< left * sigmoid(right)
};
void gate(Cpu, Gate op, const Tensor& x, Tensor& y);
void gate_backward(Cpu, Gate op, const Tensor& x, const Tensor& dy, Tensor& dx);

/// Softmax of each row of x [.., n]. Backward takes the output y: dx = y * (dy - sum(y * dy)).
void softmax(Cpu, const Tensor& x, Tensor& y);
void softmax_backward(Cpu, const Tensor& y, const Tensor& dy, Tensor& dx);

}  // namespace chorus::kernel
