// The two inner loops of all depthwise convolutions. Which rows meet which taps is in tables of pointers; a tap beyond a
// border points to a row of zeros, so the loops have no branches and an element's arithmetic doesn't depend on its place.
#pragma once
#include <chorus/tensor/kernels/vec.h>

#include <vector>

namespace chorus::kernel {

inline constexpr int row_tile = 8;  ///< output rows that are computed together

/// y[r][c] = bias[c] + sum_{j < taps} w[j][c] * x[j * step + r][c] for r < R, in order of rising j. Rows r >= count are
/// computed but not stored. The R sums are independent chains that hide the latency of the multiply-adds.
template <int R, class X, class Y>
void weighted_rows(int taps, const X* const* w, const X* const* x, int step, const X* bias, Y* const* y, int count,
                   std::int64_t channels) {
  using C = compute_type<X>;
  for_vectors<C>(channels, [&](std::int64_t c, auto extent) {
    Vec<C> total[R];
    const Vec<C> start = bias ? load<C>(bias + c, extent) : Vec<C>{};
    for (int r = 0; r < R; ++r) total[r] = start;
    for (int j = 0; j < taps; ++j) {
      const Vec<C> factor = load<C>(w[j] + c, extent);
      for (int r = 0; r < R; ++r) total[r] += factor * load<C>(x[j * step + r] + c, extent);
    }
    for (int r = 0; r < count; ++r) store<C>(y[r] + c, total[r], extent);
  });
}

/// dw[j][c] = (add ? dw[j][c] : 0) + sum_{i < items} dy[i][c] * x[i * step + j][c] for j < N, in order of rising i.
template <int N, class X>
void row_products(std::int64_t items, const X* const* dy, const X* const* x, int step, std::int64_t channels, bool add,
                  compute_type<X>* dw) {
  using C = compute_type<X>;
  for_vectors<C>(channels, [&](std::int64_t c, auto extent) {
    Vec<C> total[N];
    for (int j = 0; j < N; ++j) total[j] = add ? load<C>(dw + j * channels + c, extent) : Vec<C>{};
    for (std::int64_t i = 0; i < items; ++i) {
      const Vec<C> g = load<C>(dy[i] + c, extent);
      for (int j = 0; j < N; ++j) total[j] += g * load<C>(x[i * step + j] + c, extent);
    }
    for (int j = 0; j < N; ++j) store<C>(dw + j * channels + c, total[j], extent);
  });
}

/// dw[j][c] = sum over all items, for any number of taps. Sixteen items at a time, so that a few rows are read along rather
/// than many across (a backward of 4000 x 512 with 9 taps takes 4.5 ms rather than 5.8); then taps in even groups that fit
/// the registers.
template <class X>
void row_products(int taps, std::int64_t items, const X* const* dy, const X* const* x, int step, std::int64_t channels,
                  compute_type<X>* dw) {
  constexpr std::int64_t at_once = 16;
  const int groups = (taps + 8) / 9;
  for (std::int64_t i = 0; i == 0 || i < items; i += at_once)
    for (int g = 0; g < groups; ++g) {
      const int first = taps * g / groups, n = taps * (g + 1) / groups - first;
      const auto run = [&]<int N>() {
        row_products<N>(std::min(at_once, items - i), dy + i, x + i * step + first, step, channels, i > 0,
                        dw + first * channels);
      };
      switch (n) {
        case 1: run.template operator()<1>(); break;
        case 2: run.template operator()<2>(); break;
        case 3: run.template operator()<3>(); break;
        case 4: run.template operator()<4>(); break;
        case 5: run.template operator()<5>(); break;
        case 6: run.template operator()<6>(); break;
        case 7: run.template operator()<7>(); break;
        case 8: run.template operator()<8>(); break;
        default: run.template operator()<9>(); break;
      }
    }
}

/// to[i] (+)= sum over k < count of part[k * n + i], in order of rising k: how chunks become one result whoever made them.
template <class C>
void sum_parts(const C* part, std::int64_t count, std::int64_t n, bool add, C* to) {
  for_vectors<C>(n, [&](std::int64_t i, auto extent) {
    Vec<C> total{};
    for (std::int64_t k = 0; k < count; ++k) total += load<C>(part + k * n + i, extent);
    store<C>(to + i, add ? load<C>(to + i, extent) + total : total, extent);
  });
}

}  // namespace chorus::kernel
