#pragma once
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

/// Where column sums go: to[c] = (add ? to[c] : 0) + sum.
struct ColumnTarget {
  Tensor* sums = nullptr;  ///< [n], wide type
  bool add = false;
};

}  // namespace chorus::kernel
