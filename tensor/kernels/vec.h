// A vector of float or double on the compiler's vector extensions: element-wise kernels are written once over it,
// for f32, bf16 (computed in float) and f64, and compile for every -march. Whole vectors and the rest at the end of an array
// run the same arithmetic, so a value does not depend on where in a vector it lies.
#pragma once
#include <chorus/tensor/dtype.h>

#include <cstring>
#include <limits>

namespace chorus::kernel {

namespace detail {
template <class T, int n>
struct VectorOf {
  typedef T type __attribute__((vector_size(n * sizeof(T))));
};
template <class T, int n>
using vector_of = typename VectorOf<T, n>::type;
}  // namespace detail

/// Width of the machine's vectors: 64 with AVX-512, 32 with AVX, else 16 (wider ones compile, but selects become scalar code).
inline constexpr int vector_bytes = __BIGGEST_ALIGNMENT__ > 64 ? 64 : __BIGGEST_ALIGNMENT__;
/// With AVX-512 16 for float, 8 for double.
template <class C>
inline constexpr int lanes = vector_bytes / static_cast<int>(sizeof(C));
template <class C>
using Vec = detail::vector_of<C, lanes<C>>;
/// What comparing two Vec<C> gives: all bits set where true.
template <class C>
using IntVec = detail::vector_of<std::conditional_t<sizeof(C) == 8, std::int64_t, std::int32_t>, lanes<C>>;

template <class C>
[[gnu::always_inline]] inline Vec<C> all(C value) {
  return value - Vec<C>{};  // subtracting 0 keeps every value, -0 too, and broadcasts
}

/// How much of a vector a load or store touches: all of it, or the first `count` lanes (the others read 0).
struct Whole {};
struct First {
  int count;
};

template <class C, class T>
[[gnu::always_inline]] inline Vec<C> load(const T* from, Whole = {}) {
  constexpr int n = lanes<C>;
  if constexpr (std::is_same_v<T, bf16>) {
    detail::vector_of<std::uint16_t, n> half;
    std::memcpy(&half, from, sizeof(half));
    const auto bits = __builtin_convertvector(half, detail::vector_of<std::uint32_t, n>) << 16;
    return __builtin_convertvector(std::bit_cast<detail::vector_of<float, n>>(bits), Vec<C>);
  } else {
    detail::vector_of<T, n> v;
    std::memcpy(&v, from, sizeof(v));
    return __builtin_convertvector(v, Vec<C>);
  }
}

template <class C, class T>
[[gnu::always_inline]] inline void store(T* to, Vec<C> value, Whole = {}) {
  constexpr int n = lanes<C>;
  if constexpr (std::is_same_v<T, bf16>) {
    const auto x =
        std::bit_cast<detail::vector_of<std::uint32_t, n>>(__builtin_convertvector(value, detail::vector_of<float, n>));
    const auto rounded = (x + 0x7fffu + ((x >> 16) & 1u)) >> 16;                      // to nearest, ties to even
    const auto bits = (x & 0x7fffffffu) > 0x7f800000u ? (x >> 16) | 0x40u : rounded;  // NaN stays NaN
    const auto half = __builtin_convertvector(bits, detail::vector_of<std::uint16_t, n>);
    std::memcpy(static_cast<void*>(to), &half, sizeof(half));
  } else {
    const auto v = __builtin_convertvector(value, detail::vector_of<T, n>);
    std::memcpy(static_cast<void*>(to), &v, sizeof(v));
  }
}

template <class C, class T>
[[gnu::always_inline]] inline Vec<C> load(const T* from, First first) {
  T part[lanes<C>] = {};
  std::memcpy(static_cast<void*>(part), from, static_cast<std::size_t>(first.count) * sizeof(T));
  return load<C>(part);
}

template <class C, class T>
[[gnu::always_inline]] inline void store(T* to, Vec<C> value, First first) {
  T part[lanes<C>];
  store<C>(part, value);
  std::memcpy(static_cast<void*>(to), part, static_cast<std::size_t>(first.count) * sizeof(T));
}

/// `value` in the lanes that `extent` covers, `other` in the rest.
template <class C>
[[gnu::always_inline]] inline Vec<C> keep(Vec<C> value, Whole, C = 0) {
  return value;
}
template <class C>
[[gnu::always_inline]] inline Vec<C> keep(Vec<C> value, First first, C other = 0) {
  for (int i = first.count; i < lanes<C>; ++i) value[i] = other;
  return value;
}

template <class C>
[[gnu::always_inline]] inline Vec<C> maximum(Vec<C> a, Vec<C> b) {
  return a > b ? a : b;
}

/// Sum of all lanes, always halved in the same order.
template <class C>
C sum(Vec<C> v) {
  C part[lanes<C>];
  std::memcpy(part, &v, sizeof(v));
  for (int half = lanes<C> / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) part[i] += part[i + half];
  return part[0];
}
template <class C>
C maximum_of(Vec<C> v) {
  C best = v[0];
  for (int i = 1; i < lanes<C>; ++i) best = v[i] > best ? v[i] : best;
  return best;
}

/// e^x = 2^n e^r with |r| <= ln(2)/2 and a Taylor polynomial for e^r: its remainder, r^8/8! = 5e-9 in float and
/// r^14/14! = 4e-18 in double, lies below rounding. Results under 2^-126 (2^-1022) become 0, above the range infinity.
template <class C>
[[gnu::always_inline]] inline Vec<C> exp(Vec<C> x) {
  constexpr bool wide = sizeof(C) == 8;
  constexpr int mantissa = wide ? 52 : 23, bias = wide ? 1023 : 127, degree = wide ? 13 : 7;
  constexpr C lowest = wide ? C(-708.0) : C(-87.0), highest = wide ? C(710.0) : C(89.0);
  constexpr C to_integer = wide ? C(6755399441055744.0) : C(12582912.0);     // 1.5 * 2^mantissa: adding it rounds
  constexpr C ln2_high = wide ? C(0x1.62e42fee00000p-1) : C(0x1.62e400p-1);  // trailing zeros make n * ln2_high exact
  constexpr C ln2_low = wide ? C(0x1.a39ef35793c76p-33) : C(0x1.7f7d1cp-20);
  const Vec<C> bounded = x < lowest ? all(lowest) : x > highest ? all(highest) : x;  // NaN passes both comparisons
  const Vec<C> shifted = bounded * C(1.4426950408889634) + to_integer;
  const Vec<C> n = shifted - to_integer;
  const Vec<C> r = (bounded - n * ln2_high) - n * ln2_low;
  C factorial[degree + 1] = {1};
  for (int k = 1; k <= degree; ++k) factorial[k] = factorial[k - 1] * static_cast<C>(k);
  Vec<C> p = all(C(1) / factorial[degree]);
  for (int k = degree - 1; k >= 0; --k) p = p * r + C(1) / factorial[k];
  // The low bits of `shifted` hold n. 2^n as 2 * 2^(n-1), because the largest n has no float of its own.
  const IntVec<C> exponent = (std::bit_cast<IntVec<C>>(shifted) - std::bit_cast<IntVec<C>>(all(to_integer)) + (bias - 1))
                             << mantissa;
  const Vec<C> value = p * C(2) * std::bit_cast<Vec<C>>(exponent);
  return x < lowest ? all(C(0)) : value;
}

/// Natural logarithm, within 2 ulp. x = 2^e m with m in [sqrt(1/2), sqrt(2)); with s = (m - 1) / (m + 1),
/// log m = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172, whose remainder lies below rounding. log 0 is -infinity, that of negative
/// numbers NaN; positive ones under 2^-126 (2^-1022) count as that.
template <class C>
[[gnu::always_inline]] inline Vec<C> log(Vec<C> x) {
  constexpr bool wide = sizeof(C) == 8;
  using Bits = std::conditional_t<wide, std::int64_t, std::int32_t>;
  constexpr int mantissa = wide ? 52 : 23, terms = wide ? 11 : 5;
  constexpr C smallest = std::numeric_limits<C>::min(), infinity = std::numeric_limits<C>::infinity();
  constexpr C ln2_high = wide ? C(0x1.62e42fee00000p-1) : C(0x1.62e400p-1);  // trailing zeros make e * ln2_high exact
  constexpr C ln2_low = wide ? C(0x1.a39ef35793c76p-33) : C(0x1.7f7d1cp-20);
  constexpr auto sqrt_half = std::bit_cast<Bits>(C(0.70710678118654752));
  const Vec<C> normal = x < smallest ? all(smallest) : x;
  const auto bits = std::bit_cast<IntVec<C>>(normal);
  const IntVec<C> e = (bits - sqrt_half) >> mantissa;
  const Vec<C> m = std::bit_cast<Vec<C>>(bits - (e << mantissa)), exponent = __builtin_convertvector(e, Vec<C>);
  const Vec<C> s = (m - C(1)) / (m + C(1)), z = s * s;
  Vec<C> p = all(C(1) / static_cast<C>(2 * terms - 1));
  for (int k = terms - 2; k > 0; --k) p = p * z + C(1) / static_cast<C>(2 * k + 1);
  const Vec<C> value = exponent * ln2_high + (C(2) * s + (C(2) * s * z * p + exponent * ln2_low));
  const Vec<C> special = x == C(0) ? all(-infinity) : x < C(0) ? all(std::numeric_limits<C>::quiet_NaN()) : x;
  return (x > C(0)) & (x < infinity) ? value : special;
}

template <class C>
[[gnu::always_inline]] inline Vec<C> sigmoid(Vec<C> x) {
  return C(1) / (C(1) + exp<C>(-x));
}

/// s = sigmoid(x) and rest = 1 - s, both without cancellation: derivatives multiply the small one by large inputs.
template <class C>
struct SigmoidPair {
  Vec<C> s, rest;
  [[gnu::always_inline]] explicit SigmoidPair(Vec<C> x) {
    const Vec<C> e = exp<C>(x < C(0) ? x : -x);
    const Vec<C> large = C(1) / (C(1) + e), small = e * large;
    s = x < C(0) ? small : large;
    rest = x < C(0) ? large : small;
  }
};

/// From how many elements on an element-wise loop uses all threads.
inline constexpr std::int64_t parallel_elements = 32768;

/// Calls body(i, Whole) for each whole vector of [0, n) and body(i, First) for the rest.
template <class C, class Body>
void for_vectors(std::int64_t n, Body body) {
  constexpr std::int64_t step = lanes<C>;
  const std::int64_t whole = n / step * step;
  for (std::int64_t i = 0; i < whole; i += step) body(i, Whole{});
  if (whole < n) body(whole, First{static_cast<int>(n - whole)});
}
template <class C, class Body>
void parallel_vectors(std::int64_t n, Body body) {
  constexpr std::int64_t step = lanes<C>;
  const std::int64_t whole = n / step * step;
#pragma omp parallel for schedule(static) firstprivate(body) if (n > parallel_elements)
  for (std::int64_t i = 0; i < whole; i += step) body(i, Whole{});
  if (whole < n) body(whole, First{static_cast<int>(n - whole)});
}

/// Calls body(r) for each row of a [rows, cols] matrix.
template <class Body>
void parallel_rows(std::int64_t rows, std::int64_t cols, Body body) {
#pragma omp parallel for schedule(static) firstprivate(body) if (rows * cols > parallel_elements)
  for (std::int64_t r = 0; r < rows; ++r) body(r);
}

/// y[i] = f(x[i]...) for i in [0, n); y may be one of the x.
template <class C, class F, class Y, class... X>
void map(std::int64_t n, const F& f, Y* y, const X*... x) {
  parallel_vectors<C>(n, [=](std::int64_t i, auto extent) { store<C>(y + i, f(load<C>(x + i, extent)...), extent); });
}

}  // namespace chorus::kernel
