// Transposes in registers.
#pragma once
#include <chorus/tensor/kernels/vec.h>

#include <array>
#include <cstdint>

namespace chorus::kernel {

template <class C>
using SquareTile = std::array<Vec<C>, static_cast<std::size_t>(lanes<C>)>;

/// One step: exchanges bit `half` of the row number with the same bit of the column number.
template <int half, class C>
[[gnu::always_inline]] inline void transpose_step(SquareTile<C>& x) {
  IntVec<C> upper, lower;
  for (int c = 0; c < lanes<C>; ++c) {
    upper[c] = c & half ? lanes<C> + c - half : c;
    lower[c] = c & half ? lanes<C> + c : c + half;
  }
  for (std::size_t r = 0; r < x.size(); ++r) {
    if (r & half) continue;
    const Vec<C> a = x[r], b = x[r + half];
    x[r] = __builtin_shuffle(a, b, upper);
    x[r + half] = __builtin_shuffle(a, b, lower);
  }
}

/// Element c of vector r becomes element r of vector c, in log2(lanes) steps of one shuffle per vector.
template <class C>
[[gnu::always_inline]] inline void transpose(SquareTile<C>& x) {
  [&]<int... step>(std::integer_sequence<int, step...>) { (transpose_step<(1 << step), C>(x), ...); }
  (std::make_integer_sequence<int, std::countr_zero(static_cast<unsigned>(lanes<C>))>{});
}

template <class C>
[[gnu::always_inline]] inline SquareTile<C> load_tile(const C* from, std::int64_t ld) {
  SquareTile<C> x;
  for (std::size_t r = 0; r < x.size(); ++r) x[r] = load<C>(from + static_cast<std::int64_t>(r) * ld);
  return x;
}

/// to[n, m] = from[m, n]^T; both sizes are multiples of lanes<C>.
template <class C>
void transpose(std::int64_t m, std::int64_t n, const C* from, std::int64_t ld_from, C* to, std::int64_t ld_to) {
  for (std::int64_t i = 0; i < m; i += lanes<C>)
    for (std::int64_t j = 0; j < n; j += lanes<C>) {
      auto x = load_tile<C>(from + i * ld_from + j, ld_from);
      transpose<C>(x);
      for (std::int64_t r = 0; r < lanes<C>; ++r) store<C>(to + (j + r) * ld_to + i, x[static_cast<std::size_t>(r)]);
    }
}

}  // namespace chorus::kernel
