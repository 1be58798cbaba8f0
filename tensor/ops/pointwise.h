// Differentiable element-wise ops on tensors of any shape. Floating types; both operands of one op have the same type.
#pragma once
#include <chorus/tensor/autograd/node.h>

namespace chorus {

Tensor add(const Tensor& a, const Tensor& b);                        ///< a + b, equal shapes
Tensor add_scaled(const Tensor& a, const Tensor& b, double factor);  ///< a + factor * b, the half-step residual
Tensor add_row(const Tensor& x, const Tensor& bias);                 ///< x[.., n] + bias[n]
Tensor mul(const Tensor& a, const Tensor& b);                        ///< a * b, equal shapes
Tensor scale(const Tensor& x, double factor);
Tensor relu(const Tensor& x);
Tensor silu(const Tensor& x);  ///< x * sigmoid(x), "Swish"
/// [T, 2n] -> [T, n]: silu(left) * right. Rows hold gate, then up (Shazeer 2020, "GLU variants improve Transformer").
Tensor swiglu(const Tensor& gate_up);
/// [T, 2n] -> [T, n]: left * sigmoid(right) (Dauphin et al. 2017).
Tensor glu(const Tensor& x);
Tensor cast(const Tensor& x, DType to);  ///< floating to floating
Tensor sum(const Tensor& x);             ///< all elements, a wide tensor of shape ()
/// Softmax over the last dim; gradient as usual.
Tensor softmax(const Tensor& x);

}  // namespace chorus
