#pragma once
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

/// y[n] = (add ? y[n] : 0) + sum over the rows of x[.., n], any floating types: the gradient of a bias. Sums in the wide type,
/// runs of 64 rows first, so that neither threads nor long batches change what is added to what.
void column_sum(Cpu, const Tensor& x, bool add, Tensor& y);

}  // namespace chorus::kernel
