// Which placements may meet in an op, and how its result lies. What breaks a rule would give wrong numbers without a sign, so
// it is an error. Along each axis by itself: `same` meets only `same`; `sum` enters only ops that are linear in it, and the
// other factors are `copy`; a dim that is summed over while sharded in both operands gives `sum`; an operand that lacks a
// sharded dim is `copy`.
#pragma once
#include <chorus/tensor/autograd/node.h>

namespace chorus {

/// How the result `y` of `op` lies; null when no input says how it lies. Inputs without a layout are constants, the same on all
/// ranks. Throws an Error that names op, axis and the inputs' placements where no rule allows them, and for ops that have none.
std::shared_ptr<const Layout> result_layout(const char* op, const Inputs& inputs, const Tensor& y);

}  // namespace chorus
