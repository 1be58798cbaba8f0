#include <chorus/tensor/kernels/avx512/tiles.h>
#include <immintrin.h>

namespace chorus::kernel::avx512 {
namespace {

using Vector = __m512;
constexpr std::int64_t lanes = 16;
using Mask = __mmask16;

Mask first(std::int64_t count) { return count >= lanes ? Mask(0xffff) : count <= 0 ? Mask(0) : Mask((1u << count) - 1); }

template <bool half>
[[gnu::always_inline]] inline Vector load(const void* from, std::int64_t at, Mask mask) {
  if constexpr (half) {
    const auto bits = _mm256_maskz_loadu_epi16(mask, static_cast<const std::uint16_t*>(from) + at);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  } else {
    return _mm512_maskz_loadu_ps(mask, static_cast<const float*>(from) + at);
  }
}

/// bf16 rounded to nearest, ties to even; a NaN stays one.
template <bool half>
[[gnu::always_inline]] inline void store(void* to, std::int64_t at, Vector value, Mask mask) {
  if constexpr (half) {
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const Mask nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    _mm256_mask_storeu_epi16(static_cast<std::uint16_t*>(to) + at, mask,
                             _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet)));
  } else {
    _mm512_mask_storeu_ps(static_cast<float*>(to) + at, mask, value);
  }
}

/// One step of the transpose: exchanges bit `bit` of the row number with the same bit of the column number.
template <int bit>
[[gnu::always_inline]] inline void transpose_step(Vector (&x)[lanes]) {
  alignas(64) std::int32_t upper[lanes], lower[lanes];
  for (int c = 0; c < lanes; ++c) {
    upper[c] = c & bit ? static_cast<int>(lanes) + c - bit : c;
    lower[c] = c & bit ? static_cast<int>(lanes) + c : c + bit;
  }
  const __m512i up = _mm512_load_si512(upper), low = _mm512_load_si512(lower);
  for (int r = 0; r < lanes; ++r) {
    if (r & bit) continue;
    const Vector a = x[r], b = x[r + bit];
    x[r] = _mm512_permutex2var_ps(a, up, b);
    x[r + bit] = _mm512_permutex2var_ps(a, low, b);
  }
}

template <bool half>
void pack_rows(Source source, std::int64_t depth, std::int64_t columns, std::int64_t width, float* to) {
  const Mask mask[2] = {first(columns), first(columns - lanes)}, room = first(width - lanes);
  for (std::int64_t k = 0; k < depth; ++k, to += width) {
    store<false>(to, 0, load<half>(source.data, k * source.ld, mask[0]), first(width));
    if (width > lanes) store<false>(to, lanes, load<half>(source.data, k * source.ld + lanes, mask[1]), room);
  }
}

template <bool half>
void pack_transposed(Source source, std::int64_t depth, std::int64_t columns, float* panel) {
  for (std::int64_t c = 0; c < panel_columns; c += lanes)
    for (std::int64_t k = 0; k < depth; k += lanes) {
      const Mask mask = first(depth - k);
      Vector x[lanes];
#pragma GCC unroll 16
      for (int r = 0; r < lanes; ++r)
        x[r] = c + r < columns ? load<half>(source.data, (c + r) * source.ld + k, mask) : _mm512_setzero_ps();
      transpose_step<1>(x);
      transpose_step<2>(x);
      transpose_step<4>(x);
      transpose_step<8>(x);
      const std::int64_t rows = depth - k < lanes ? depth - k : lanes;
      for (std::int64_t r = 0; r < rows; ++r) _mm512_storeu_ps(panel + (k + r) * panel_columns + c, x[r]);
    }
}

template <bool half>
[[gnu::always_inline]] inline void finish(Vector sum, const Target& y, std::int64_t row, std::int64_t column, Mask mask) {
  if (y.bias) sum += y.bias_half ? load<true>(y.bias, column, mask) : load<false>(y.bias, column, mask);
  const std::int64_t at = row * y.ld + column;
  if (y.accumulate) sum += load<half>(y.data, at, mask);
  store<half>(y.data, at, sum, mask);
}

/// `R` rows by one panel: 2 R sums in registers.
template <int R, bool grouped>
void tile(const float* a, std::int64_t ld, const float* panel, std::int64_t depth, const Target& y, std::int64_t row) {
  Vector sum[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    sum[r][0] = sum[r][1] = _mm512_setzero_ps();
    const char* result = static_cast<const char*>(y.data) + (row + r) * y.ld * (y.half ? 2 : 4);
    __builtin_prefetch(result, 1, 3);
    if (!y.half) __builtin_prefetch(result + 64, 1, 3);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    const Vector b0 = _mm512_loadu_ps(panel + k * panel_columns), b1 = _mm512_loadu_ps(panel + k * panel_columns + lanes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const Vector x = _mm512_set1_ps(grouped ? a[k * group_rows + r] : a[r * ld + k]);
      sum[r][0] = _mm512_fmadd_ps(x, b0, sum[r][0]);
      sum[r][1] = _mm512_fmadd_ps(x, b1, sum[r][1]);
    }
  }
  const Mask mask[2] = {first(y.columns), first(y.columns - lanes)};
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < 2; ++v) {
      if (y.half)
        finish<true>(sum[r][v], y, row + r, v * lanes, mask[v]);
      else
        finish<false>(sum[r][v], y, row + r, v * lanes, mask[v]);
    }
}

template <bool grouped>
void tiles(const Left& a, const float* panel, std::int64_t depth, const Target& y) {
  std::int64_t row = 0;
  const auto at = [&] { return grouped ? a.data + row * depth : a.data + row * a.ld; };
  for (; row + 12 <= a.rows; row += 12) tile<12, grouped>(at(), a.ld, panel, depth, y, row);
  const std::int64_t left = a.rows - row, start = row;
  // The rest of a group keeps the group's layout.
  const auto rest = [&] { return grouped ? a.data + start * depth + (row - start) : a.data + row * a.ld; };
  if (left & 8) tile<8, grouped>(rest(), a.ld, panel, depth, y, row), row += 8;
  if (left & 4) tile<4, grouped>(rest(), a.ld, panel, depth, y, row), row += 4;
  if (left & 2) tile<2, grouped>(rest(), a.ld, panel, depth, y, row), row += 2;
  if (left & 1) tile<1, grouped>(rest(), a.ld, panel, depth, y, row);
}

}  // namespace

const bool built = true;

void pack_panel(Source source, std::int64_t depth, std::int64_t columns, float* panel) {
  source.half ? pack_rows<true>(source, depth, columns, panel_columns, panel)
              : pack_rows<false>(source, depth, columns, panel_columns, panel);
}

void pack_panel_transposed(Source source, std::int64_t depth, std::int64_t columns, float* panel) {
  source.half ? pack_transposed<true>(source, depth, columns, panel) : pack_transposed<false>(source, depth, columns, panel);
}

void pack_group(Source source, std::int64_t depth, std::int64_t rows, float* group) {
  source.half ? pack_rows<true>(source, depth, rows, group_rows, group)
              : pack_rows<false>(source, depth, rows, group_rows, group);
}

void widen(Source source, std::int64_t rows, std::int64_t depth, float* target) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t k = 0; k < depth; k += lanes) {
      const Mask mask = first(depth - k);
      const std::int64_t at = r * source.ld + k;
      store<false>(target, r * depth + k, source.half ? load<true>(source.data, at, mask) : load<false>(source.data, at, mask),
                   mask);
    }
}

void multiply(const Left& a, const float* panel, std::int64_t depth, const Target& y) {
  a.ld == 0 ? tiles<true>(a, panel, depth, y) : tiles<false>(a, panel, depth, y);
}

}  // namespace chorus::kernel::avx512
