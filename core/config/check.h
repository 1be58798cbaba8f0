// What a key accepts beyond its type, as values: each check has `ok(value)` and says what it expects.
#pragma once
#include <algorithm>
#include <concepts>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace chorus {

/// Marks a key without a default.
struct Required {};
inline constexpr Required required_key{};

template <class T>
concept Number = std::is_arithmetic_v<T> && !std::same_as<T, bool>;

/// A range of numbers. Bounds are long doubles because those hold every 64-bit integer and every double exactly.
struct Bounds {
  long double low = -std::numeric_limits<long double>::infinity(), high = std::numeric_limits<long double>::infinity();
  bool low_open = false, high_open = false;  ///< whether the bound itself is out
  std::string expected;
  /// Not-a-number is in no range.
  template <Number T>
  bool ok(T v) const {
    return (low_open ? v > low : v >= low) && (high_open ? v < high : v <= high);
  }
};
namespace config {
template <class... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}
}  // namespace config
template <Number T>
Bounds greater_than(T bound) {
  return {.low = static_cast<long double>(bound), .low_open = true, .expected = config::joined("greater than ", bound)};
}
template <Number T>
Bounds less_than(T bound) {
  return {.high = static_cast<long double>(bound), .high_open = true, .expected = config::joined("less than ", bound)};
}
template <Number T>
Bounds at_least(T bound) {
  return {.low = static_cast<long double>(bound), .expected = config::joined("at least ", bound)};
}
template <Number T>
Bounds at_most(T bound) {
  return {.high = static_cast<long double>(bound), .expected = config::joined("at most ", bound)};
}
/// Both ends included.
template <Number T, Number U>
Bounds between(T low, U high) {
  return {.low = static_cast<long double>(low),
          .high = static_cast<long double>(high),
          .expected = config::joined("from ", low, " to ", high)};
}

/// One of some words.
struct OneOf {
  std::vector<std::string> words;
  std::string expected;
  bool ok(const std::string& word) const { return std::ranges::find(words, word) != words.end(); }
};
template <std::convertible_to<std::string>... Words>
OneOf one_of(const Words&... words) {
  OneOf check{{std::string(words)...}, "one of "};
  for (std::size_t i = 0; i < check.words.size(); ++i) check.expected += (i ? ", \"" : "\"") + check.words[i] + '"';
  return check;
}

/// At least one character or element.
struct NotEmpty {
  std::string expected = "something that is not empty";
  template <class T>
  requires requires(const T& v) { v.empty(); }
  bool ok(const T& v) const { return !v.empty(); }
};
inline NotEmpty not_empty() { return {}; }

/// Whatever a predicate says: `satisfies([](int n) { return n % 2 == 0; }, "an even number")`.
template <class F>
struct Satisfies {
  F predicate;
  std::string expected;
  template <class T>
  requires std::predicate<const F&, const T&>
  bool ok(const T& v) const { return predicate(v); }
};
template <class F>
Satisfies<F> satisfies(F predicate, std::string expected) {
  return {std::move(predicate), std::move(expected)};
}
inline auto multiple_of(long long n) {
  return satisfies([n](std::integral auto v) { return static_cast<long long>(v) % n == 0; },
                   config::joined("a multiple of ", n));
}

}  // namespace chorus
