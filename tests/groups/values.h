// Made-up values of every rank that every rank can compute, and the obvious reduction of them.
#pragma once
#include <chorus/parallel/group/group.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace chorus::testing {

/// Bits that look random, of a rank's element i in the test numbered `salt`.
inline std::uint64_t bits_of(int rank, std::int64_t i, std::uint64_t salt) {
  std::uint64_t x = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15u +
                    static_cast<std::uint64_t>(rank + 1) * 0xbf58476d1ce4e5b9u + salt * 0x94d049bb133111ebu;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Floating values differ in magnitude, so that another order of adding gives other bits; integers wrap around when added.
template <class T>
T value_of(int rank, std::int64_t i, std::uint64_t salt) {
  const std::uint64_t bits = bits_of(rank, i, salt);
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(bits);
  else
    return T(std::ldexp(static_cast<double>(bits >> 11) * 0x1p-53 - 0.5, static_cast<int>(bits % 24)));
}

template <class T>
T reduced(int ranks, std::int64_t i, std::uint64_t salt, Reduce how) {
  if constexpr (std::is_integral_v<T>) {
    std::uint64_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += static_cast<std::uint64_t>(static_cast<std::int64_t>(value_of<T>(r, i, salt)));
    if (how == Reduce::sum) return static_cast<T>(sum);
  }
  using C = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
  C result = static_cast<C>(value_of<T>(0, i, salt));
  for (int r = 1; r < ranks; ++r) {
    const C next = static_cast<C>(value_of<T>(r, i, salt));
    if (how == Reduce::sum && !std::is_integral_v<T>) result = result + next;
    if (how == Reduce::max) result = std::max(result, next);
    if (how == Reduce::min) result = std::min(result, next);
  }
  return static_cast<T>(result);
}

/// `count` elements between guards, which are looked at when it goes.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::int64_t count)
      : bytes_(static_cast<std::size_t>(count) * sizeof(T)), memory_(bytes_ + 2 * guard, 0x5a) {}
  ~Guarded() {
    for (std::size_t i = 0; i < guard; ++i)
      EXPECT_TRUE(memory_[i] == 0x5a && memory_[guard + bytes_ + i] == 0x5a) << "a write " << i << " bytes outside";
  }
  T* data() { return reinterpret_cast<T*>(memory_.data() + guard); }
  std::int64_t count() const { return static_cast<std::int64_t>(bytes_ / sizeof(T)); }
  Elements elements() { return {data(), count(), dtype_of<T>}; }
  std::span<T> span() { return {data(), static_cast<std::size_t>(count())}; }
  template <class F>
  void fill(F value) {
    for (std::int64_t i = 0; i < count(); ++i) data()[i] = value(i);
  }
  /// The first element whose bits aren't those of value(i), told once.
  template <class F>
  void expect(F value, const std::string& what) {
    for (std::int64_t i = 0; i < count(); ++i) {
      const T want = value(i);
      if (std::memcmp(&want, data() + i, sizeof(T)) == 0) continue;
      ADD_FAILURE() << what << ": element " << i << " of " << count() << " is " << printed(data()[i]) << ", not "
                    << printed(want);
      return;
    }
  }

 private:
  static double printed(T x) { return static_cast<double>(x); }
  static constexpr std::size_t guard = 64;
  std::size_t bytes_;
  std::vector<unsigned char> memory_;
};

}  // namespace chorus::testing
