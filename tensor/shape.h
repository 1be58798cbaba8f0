#pragma once
#include <chorus/core/error.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>

namespace chorus {

/// Sizes of a tensor's dims, outermost first; at most four.
class Shape {
 public:
  static constexpr int max_rank = 4;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) {
    for (const auto n : sizes) push_back(n);
  }
  void push_back(std::int64_t n) {
    require(rank_ < max_rank && n >= 0, "Shape", "size ", n, " of dim ", rank_, "; at most ", max_rank, " dims of 0 or more");
    sizes_[static_cast<std::size_t>(rank_++)] = n;
  }
  int rank() const { return rank_; }
  /// Negative dims count from the end.
  std::int64_t operator[](int dim) const { return sizes_[static_cast<std::size_t>(dim < 0 ? dim + rank_ : dim)]; }
  std::int64_t& operator[](int dim) { return sizes_[static_cast<std::size_t>(dim < 0 ? dim + rank_ : dim)]; }
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int d = 0; d < rank_; ++d) n *= (*this)[d];
    return n;
  }
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && std::equal(a.sizes_.begin(), a.sizes_.begin() + a.rank_, b.sizes_.begin());
  }
  friend std::ostream& operator<<(std::ostream& out, const Shape& s) {
    out << '(';
    for (int d = 0; d < s.rank_; ++d) out << (d ? ", " : "") << s[d];
    return out << ')';
  }

 private:
  int rank_ = 0;
  std::array<std::int64_t, max_rank> sizes_{};
};

}  // namespace chorus
