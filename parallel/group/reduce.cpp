#include <chorus/parallel/group/reduce.h>

#include <cstring>

namespace chorus {
namespace {

// Blocks that stay in the nearest cache while every rank's values are added: each is read and written in memory once.
constexpr std::int64_t block = 1024;

// Integers are added as unsigned ones, which may wrap around.
template <class T>
using Sum = std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>,
                               std::type_identity<std::conditional_t<std::is_same_v<T, double>, double, float>>>::type;

struct Add {
  template <class T>
  using type = Sum<T>;
  template <class C>
  static C of(C a, C b) {
    return a + b;
  }
};
template <class T>
using Compared = std::conditional_t<std::is_same_v<T, bf16>, float, T>;
struct Max {
  template <class T>
  using type = Compared<T>;
  template <class C>
  static C of(C a, C b) {
    return b > a || b != b ? b : a;  // once a is NaN, only another NaN takes its place
  }
};
struct Min {
  template <class T>
  using type = Compared<T>;
  template <class C>
  static C of(C a, C b) {
    return b < a || b != b ? b : a;
  }
};

template <class T, class How>
void reduce_typed(std::span<const void* const> inputs, std::span<void* const> outputs, std::int64_t count) {
  using C = typename How::template type<T>;
  C sums[block];
  T results[block];
  for (std::int64_t begin = 0; begin < count; begin += block) {
    const std::int64_t n = std::min(block, count - begin);
    const T* first = static_cast<const T*>(inputs[0]) + begin;
    std::size_t next = 1;
    if (inputs.size() == 1) {
      for (std::int64_t i = 0; i < n; ++i) sums[i] = static_cast<C>(first[i]);
    } else {
      const T* second = static_cast<const T*>(inputs[next++]) + begin;
      for (std::int64_t i = 0; i < n; ++i) sums[i] = How::of(static_cast<C>(first[i]), static_cast<C>(second[i]));
    }
    for (; next < inputs.size(); ++next) {
      const T* more = static_cast<const T*>(inputs[next]) + begin;
      for (std::int64_t i = 0; i < n; ++i) sums[i] = How::of(sums[i], static_cast<C>(more[i]));
    }
    const void* done = sums;
    if constexpr (sizeof(C) != sizeof(T)) {
      for (std::int64_t i = 0; i < n; ++i) results[i] = static_cast<T>(sums[i]);
      done = results;
    }
    for (void* out : outputs) std::memcpy(static_cast<T*>(out) + begin, done, static_cast<std::size_t>(n) * sizeof(T));
  }
}

}  // namespace

void reduce(DType dtype, Reduce how, std::span<const void* const> inputs, std::span<void* const> outputs, std::int64_t count) {
  dispatch<float, bf16, double, std::int32_t, std::int64_t>(dtype, "reduce", [&]<class T>() {
    if (how == Reduce::sum) reduce_typed<T, Add>(inputs, outputs, count);
    if (how == Reduce::max) reduce_typed<T, Max>(inputs, outputs, count);
    if (how == Reduce::min) reduce_typed<T, Min>(inputs, outputs, count);
  });
}

}  // namespace chorus
