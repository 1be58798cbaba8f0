// Element types, and the dispatch from a run-time type to a template.
#pragma once
#include <chorus/core/error.h>

#include <bit>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace chorus {

enum class DType { f32, bf16, f64, i32, i64, u8 };

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}
constexpr std::string_view name(DType t) {
  switch (t) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
  }
  return "?";
}
inline std::ostream& operator<<(std::ostream& out, DType t) { return out << name(t); }
constexpr bool is_floating(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f64; }

/// The upper half of a float. Arithmetic happens in float; conversion rounds to nearest even and keeps NaN.
struct bf16 {
  std::uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float x) {
    const auto u = std::bit_cast<std::uint32_t>(x);
    bits = static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u
                                                                      : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit bf16(double x) : bf16(static_cast<float>(x)) {}
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
  explicit operator double() const { return static_cast<float>(*this); }
};

template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "not an element type");
  return DType::f32;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::u8;

/// What sums and element-wise arithmetic on T are done in.
template <class T>
using compute_type = std::conditional_t<std::is_same_v<T, double>, double, float>;
/// Type of gradients of parameters, and of statistics, for values of type t: f64 for f64, else f32.
constexpr DType wide(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

/// Calls f.template operator()<T>() with the T of `t` among Ts; any other type is an error naming `at`.
template <class... Ts, class F>
void dispatch(DType t, At at, F&& f) {
  const bool hit = ((t == dtype_of<Ts> && (f.template operator()<Ts>(), true)) || ...);
  if (!hit) [[unlikely]] {
    std::ostringstream known;
    ((known << ' ' << dtype_of<Ts>), ...);
    fail(at, "does not take ", t, "; it takes", known.str());
  }
}
template <class F>
void dispatch_floating(DType t, At at, F&& f) {
  dispatch<float, bf16, double>(t, at, static_cast<F&&>(f));
}

}  // namespace chorus
