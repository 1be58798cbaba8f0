#include <chorus/io/checkpoint/copy_box.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace chorus {
namespace {

void copy_run(const HostBox& from, std::int64_t first, const HostBox& into, std::int64_t target, std::int64_t count) {
  const auto at = [](const HostBox& box, std::int64_t i) {
    return static_cast<char*>(box.data) + static_cast<std::size_t>(i) * size_of(box.dtype);
  };
  if (from.dtype == into.dtype) {
    std::memcpy(at(into, target), at(from, first), static_cast<std::size_t>(count) * size_of(from.dtype));
    return;
  }
  dispatch_floating(from.dtype, "copy_box", [&]<class From>() {
    dispatch_floating(into.dtype, "copy_box", [&]<class To>() {
      const auto* source = reinterpret_cast<const From*>(at(from, first));
      std::transform(source, source + count, reinterpret_cast<To*>(at(into, target)),
                     [](From x) { return static_cast<To>(static_cast<compute_type<From>>(x)); });
    });
  });
}

}  // namespace

std::int64_t common_elements(const Shape& offset_a, const Shape& shape_a, const Shape& offset_b, const Shape& shape_b) {
  std::int64_t total = 1;
  for (int d = 0; d < shape_a.rank(); ++d) {
    const std::int64_t begin = std::max(offset_a[d], offset_b[d]);
    total *= std::max<std::int64_t>(0, std::min(offset_a[d] + shape_a[d], offset_b[d] + shape_b[d]) - begin);
  }
  return total;
}

std::int64_t copy_box(const HostBox& from, const HostBox& into) {
  // All boxes as four dims, the missing outer ones of size 1.
  constexpr int dims = Shape::max_rank;
  std::array<std::int64_t, dims> begin{}, count{}, from_size{}, into_size{}, from_begin{}, into_begin{};
  const std::int64_t total = common_elements(from.offset, from.shape, into.offset, into.shape);
  if (total == 0) return 0;
  for (int d = 0; d < dims; ++d) {
    const int own = d - (dims - from.shape.rank());
    const auto u = static_cast<std::size_t>(d);
    from_size[u] = own < 0 ? 1 : from.shape[own];
    into_size[u] = own < 0 ? 1 : into.shape[own];
    from_begin[u] = own < 0 ? 0 : from.offset[own];
    into_begin[u] = own < 0 ? 0 : into.offset[own];
    begin[u] = std::max(from_begin[u], into_begin[u]);
    count[u] = std::min(from_begin[u] + from_size[u], into_begin[u] + into_size[u]) - begin[u];
  }

  // Inner dims that both boxes hold in full make one run with the dim before them.
  std::size_t inner = dims - 1;
  std::int64_t run = count[inner];
  while (inner > 0 && count[inner] == from_size[inner] && count[inner] == into_size[inner]) run *= count[--inner];
  std::array<std::int64_t, dims> index{};
  for (std::int64_t done = 0; done < total; done += run) {
    std::int64_t source = 0, target = 0;
    for (std::size_t d = 0; d < dims; ++d) {
      source = source * from_size[d] + begin[d] + index[d] - from_begin[d];
      target = target * into_size[d] + begin[d] + index[d] - into_begin[d];
    }
    copy_run(from, source, into, target, run);
    for (std::size_t d = inner; d-- > 0;) {
      if (++index[d] < count[d]) break;
      index[d] = 0;
    }
  }
  return total;
}

}  // namespace chorus
