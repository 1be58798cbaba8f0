// An optimizer step over a part of the flat arrays at a time.
#pragma once
#include <chorus/tensor/kernels/optimizer.h>

#include <functional>
#include <vector>

namespace chorus {

/// Elements of the flat arrays [begin, end).
struct StateWindow {
  std::int64_t begin, end;
};

/// Calls `update` for one window of `window` elements after the other, over [0, elements), with what of `ranges` lies in it.
/// Ranges don't overlap, are in any order, and are cut where windows end; their gradients and masters, where there are some,
/// are of type `wide_type`.
void in_windows(std::vector<kernel::UpdateRange> ranges, std::int64_t elements, std::int64_t window, DType wide_type,
                const std::function<void(const StateWindow&, std::span<const kernel::UpdateRange>)>& update);

}  // namespace chorus
