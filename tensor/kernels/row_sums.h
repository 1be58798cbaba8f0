// Sums over rows whose result depends on neither threads nor their order of arrival.
#pragma once
#include <chorus/tensor/kernels/column_target.h>
#include <chorus/tensor/kernels/vec.h>

#include <span>

namespace chorus::kernel {

/// Calls body(r, part) for every row; the body adds its row's contribution to part[0, n) for the first target, part[n, 2n)
/// for the second and so on. A chunk of 64 rows has a `part` of its own; at the end chunks are added in order. Without
/// targets `part` is null.
template <class C, class Body>
void sum_over_rows(Context& context, std::int64_t rows, std::int64_t n, std::span<const ColumnTarget> targets, Body body) {
  constexpr std::int64_t chunk = 64;
  const std::int64_t chunks = (rows + chunk - 1) / chunk, width = n * static_cast<std::int64_t>(targets.size());
  const Tensor parts = Tensor::empty(context, {chunks * width}, dtype_of<C>, Category::workspace);
  C* part = width ? parts.as<C>() : nullptr;
#pragma omp parallel for schedule(static) firstprivate(body) if (rows * n > parallel_elements)
  for (std::int64_t k = 0; k < chunks; ++k) {
    C* own = part ? part + k * width : nullptr;
    if (own) std::fill(own, own + width, C(0));
    for (std::int64_t r = k * chunk; r < std::min(rows, (k + 1) * chunk); ++r) body(r, own);
  }
  for (std::size_t t = 0; t < targets.size(); ++t) {
    C* to = targets[t].sums->as<C>();
    const C* from = part + static_cast<std::int64_t>(t) * n;
    parallel_vectors<C>(n, [=, add = targets[t].add](std::int64_t c, auto extent) {
      Vec<C> total{};
      for (std::int64_t k = 0; k < chunks; ++k) total += load<C>(from + k * width + c, extent);
      store<C>(to + c, add ? total + load<C>(to + c, extent) : total, extent);
    });
  }
}

}  // namespace chorus::kernel
