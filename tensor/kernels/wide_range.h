// Eight probabilities with a range without end: value = m * 2^e, m in [1, 2) or 0, e a 64-bit integer. Forward-backward
// sums over hundreds of frames reach 2^-10000, where doubles are 0, and the usual way out, sums of logarithms, costs three
// exponentials and a logarithm per state and rounds a number of size 1000 at every step. Here a sum is a shift of exponents.
#pragma once
#include <chorus/tensor/kernels/vec.h>

namespace chorus::kernel {

using Mantissas = Vec<double>;
using Exponents = IntVec<double>;

struct WideRange {
  Mantissas m;
  Exponents e;
};

/// The exponent of 0: below every other, and far enough from the ends of int64 for sums and differences.
inline constexpr std::int64_t zero_exponent = -(std::int64_t{1} << 60);

/// 2^d for d <= 1000, 0 for what vanishes beside 1.
[[gnu::always_inline]] inline Mantissas power_of_two(Exponents d) {
  return d < -1000 ? Mantissas{} : std::bit_cast<Mantissas>((d + 1023) << 52);
}

[[gnu::always_inline]] inline Exponents larger(Exponents a, Exponents b) { return a > b ? a : b; }

/// Sums are not normalised: their m lies in [1, 2 * terms) or is 0.
[[gnu::always_inline]] inline WideRange operator+(WideRange a, WideRange b) {
  const Exponents e = larger(a.e, b.e);
  return {a.m * power_of_two(a.e - e) + b.m * power_of_two(b.e - e), e};
}

[[gnu::always_inline]] inline WideRange operator*(WideRange a, WideRange b) { return {a.m * b.m, a.e + b.e}; }

[[gnu::always_inline]] inline WideRange normalised(WideRange a) {
  const auto bits = std::bit_cast<Exponents>(a.m);
  const auto m = std::bit_cast<Mantissas>((bits & 0x000fffffffffffff) | 0x3ff0000000000000);
  const auto zero = a.m == 0.0;
  return {zero ? Mantissas{} : m, zero ? Exponents{} + zero_exponent : a.e + (bits >> 52) - 1023};
}

/// e^x as a product: |r| <= ln(2)/2 goes into m (in [0.7, 1.42]). Under e^-1e8 it is 0.
[[gnu::always_inline]] inline WideRange wide_exp(Mantissas x) {
  constexpr double rounding = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer, which the low bits then hold
  const auto vanishes = x < -1e8;
  const Mantissas bounded = vanishes ? Mantissas{} : x;
  const Mantissas shifted = bounded * 1.4426950408889634 + rounding, n = shifted - rounding;
  const Mantissas r = (bounded - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
  const Exponents e = std::bit_cast<Exponents>(shifted) - std::bit_cast<Exponents>(all<double>(rounding));
  return {vanishes ? Mantissas{} : exp<double>(r), vanishes ? Exponents{} + zero_exponent : e};
}

}  // namespace chorus::kernel
