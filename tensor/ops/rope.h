#pragma once
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/rows.h>

namespace chorus {

/// Rotary position embedding (Su et al. 2021) of the first `heads` heads of x [T, total * head_dim]; later heads (values)
/// pass through. Pairs are (i, i + head_dim/2) of a head, angle = rows.positions[t] * base^(-2i/head_dim).
Tensor rope(const Tensor& x, const Rows& rows, int heads, int head_dim, double base);

}  // namespace chorus
