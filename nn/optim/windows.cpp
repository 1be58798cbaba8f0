#include <chorus/nn/optim/windows.h>

#include <algorithm>

namespace chorus {
namespace {

using kernel::UpdateRange;

/// Elements [begin, begin + count) of a range.
UpdateRange part_of(const UpdateRange& range, std::int64_t begin, std::int64_t count, std::size_t element) {
  UpdateRange part = range;
  part.first += begin;
  part.count = count;
  const auto bytes = static_cast<std::size_t>(begin) * element;
  part.grad = static_cast<const char*>(range.grad) + bytes;
  if (part.master) part.master = static_cast<char*>(range.master) + bytes;
  if (part.value) part.value += begin;
  return part;
}

}  // namespace

void in_windows(std::vector<UpdateRange> ranges, std::int64_t elements, std::int64_t window, DType wide_type,
                const std::function<void(const StateWindow&, std::span<const UpdateRange>)>& update) {
  require(window > 0, "optimizer", "windows of ", window, " elements");
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<UpdateRange> inside;
  std::size_t next = 0;  // the first range that doesn't end before the window
  for (std::int64_t begin = 0; begin < elements; begin += window) {
    const std::int64_t end = begin + std::min(window, elements - begin);
    inside.clear();
    while (next < ranges.size() && ranges[next].first + ranges[next].count <= begin) ++next;
    for (std::size_t r = next; r < ranges.size() && ranges[r].first < end; ++r) {
      const std::int64_t from = std::max(begin, ranges[r].first), to = std::min(end, ranges[r].first + ranges[r].count);
      inside.push_back(part_of(ranges[r], from - ranges[r].first, to - from, size_of(wide_type)));
    }
    update({begin, end}, inside);
  }
}

}  // namespace chorus
