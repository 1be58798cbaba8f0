#pragma once
#include <chorus/nn/param.h>

namespace chorus {

/// Calls f(first, offset, count) for every run of elements of `box` that lie together in the whole tensor of shape `global`:
/// from element `first` of that, at element `offset` of the box.
template <class F>
void for_each_run(const Shape& global, const Box& box, const F& f) {
  int dim = global.rank() - 1;  // the innermost dim of which the box has a part, or dim 0
  std::int64_t inner = 1, count = box.size.numel();
  while (dim > 0 && box.size[dim] == global[dim]) inner *= global[dim--];
  if (count == 0) return;
  const std::int64_t run = global.rank() ? box.size[dim] * inner : 1;
  for (std::int64_t offset = 0; offset < count; offset += run) {
    std::int64_t first = 0, stride = 1, rest = offset;
    for (int d = global.rank() - 1; d >= 0; --d) {
      first += (box.begin[d] + rest % box.size[d]) * stride;
      stride *= global[d];
      rest /= box.size[d];
    }
    f(first, offset, run);
  }
}

}  // namespace chorus
