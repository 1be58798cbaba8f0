// Small matrix products inside the blocks of a kernel: operands in the caches, result tiles in registers.
#pragma once
#include <chorus/tensor/kernels/vec.h>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace chorus::kernel {

/// The left operand, read one element at a time: (m, k) is data[m * ld + k], or data[k * ld + m] when transposed. Either is
/// as fast, so no product here ever needs a transposed copy of it.
template <class C>
struct Left {
  const C* data;
  std::int64_t ld;
  bool transposed = false;
};
/// Rows of whole vectors, `ld` elements apart.
template <class C>
struct Right {
  const C* data;
  std::int64_t ld;
};

/// Vectors across a tile, and rows down: enough independent sums to hide the latency of a fused multiply-add (4 cycles, two
/// units), few enough for the registers (32 with 64-byte vectors, else 16).
template <class C>
constexpr int tile_vectors = sizeof(Vec<C>) == 64 ? 4 : 2;
template <class C>
constexpr int tile_rows(int vectors) {
  return vectors == tile_vectors<C> ? 6 : vectors == 1 ? 12 : 8;
}

/// R rows by N vectors of c (+)= a b.
template <int R, int N, bool Transposed, class C>
void product_tile(std::int64_t depth, const C* a, std::int64_t lda, Right<C> b, C* c, std::int64_t ldc, bool accumulate) {
  Vec<C> sum[R][N];
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) sum[r][n] = accumulate ? load<C>(c + r * ldc + n * lanes<C>) : Vec<C>{};
  for (std::int64_t k = 0; k < depth; ++k) {
    Vec<C> row[N];
    for (int n = 0; n < N; ++n) row[n] = load<C>(b.data + k * b.ld + n * lanes<C>);
    for (int r = 0; r < R; ++r) {
      const Vec<C> x = all<C>(Transposed ? a[k * lda + r] : a[r * lda + k]);
      for (int n = 0; n < N; ++n) sum[r][n] += x * row[n];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) store<C>(c + r * ldc + n * lanes<C>, sum[r][n]);
}

template <int R, int N, bool Transposed, class C>
void product_rows(std::int64_t m, std::int64_t depth, const C* a, std::int64_t lda, Right<C> b, C* c, std::int64_t ldc,
                  bool accumulate) {
  for (; m >= R; m -= R, a += Transposed ? R : R * lda, c += R * ldc)
    product_tile<R, N, Transposed>(depth, a, lda, b, c, ldc, accumulate);
  if constexpr (R > 1)
    if (m > 0) product_rows<std::bit_floor(R - 1u), N, Transposed>(m, depth, a, lda, b, c, ldc, accumulate);
}

/// c[m, vectors * lanes] = a b, or += with `accumulate`. The order of each sum is that of k, whatever the tile.
template <int N = 0, class C>
void block_product(std::int64_t m, int vectors, std::int64_t depth, Left<C> a, Right<C> b, C* c, std::int64_t ldc,
                   bool accumulate) {
  constexpr int widest = tile_vectors<C>;
  if constexpr (N == 0) {
    for (; vectors > 0; vectors -= widest, b.data += widest * lanes<C>, c += widest * lanes<C>)
      block_product<widest>(m, std::min(vectors, widest), depth, a, b, c, ldc, accumulate);
  } else if (vectors < N) {
    if constexpr (N > 1) block_product<N - 1>(m, vectors, depth, a, b, c, ldc, accumulate);
  } else if (a.transposed) {
    product_rows<tile_rows<C>(N), N, true>(m, depth, a.data, a.ld, b, c, ldc, accumulate);
  } else {
    product_rows<tile_rows<C>(N), N, false>(m, depth, a.data, a.ld, b, c, ldc, accumulate);
  }
}

}  // namespace chorus::kernel
