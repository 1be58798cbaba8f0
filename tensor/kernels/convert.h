// Blocks of matrices between element types: what products need around them.
#pragma once
#include <chorus/tensor/dtype.h>

#include <cstdint>

namespace chorus::kernel {

/// A block of rows of a row-major matrix; `stride` is the distance of its rows in elements.
template <class T>
struct Block {
  T* data;
  std::int64_t rows, cols, stride;
};

/// target[r][c] = (add ? target[r][c] : 0) + source[r][c] + (bias ? bias[c] : 0); sizes are source's.
template <class From, class To, class B = To>
void convert(Block<const From> source, Block<To> target, bool add = false, const B* bias = nullptr) {
  using C = compute_type<To>;
#pragma omp parallel for schedule(static) if (source.rows * source.cols > 32768)
  for (std::int64_t r = 0; r < source.rows; ++r) {
    const From* from = source.data + r * source.stride;
    To* to = target.data + r * target.stride;
    if (!add && !bias) {
#pragma omp simd
      for (std::int64_t c = 0; c < source.cols; ++c) to[c] = static_cast<To>(static_cast<C>(from[c]));
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < source.cols; ++c)
        to[c] = static_cast<To>(static_cast<C>(from[c]) + (add ? static_cast<C>(to[c]) : C{0}) +
                                (bias ? static_cast<C>(bias[c]) : C{0}));
    }
  }
}

}  // namespace chorus::kernel
