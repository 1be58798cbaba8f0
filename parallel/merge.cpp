#include <chorus/nn/box_runs.h>
#include <chorus/parallel/merge.h>
#include <chorus/parallel/redistribute.h>

#include <algorithm>
#include <cstring>

namespace chorus {

Tensor held(const Tensor& owned, const ParamStore::Entry& entry, const ParamStore& store, const Mesh& mesh) {
  const Shape& shape = entry.param->box.size;
  if (entry.buffer < 0) return owned.reshaped(shape);
  const FlatBuffer& buffer = store.flat_buffers[static_cast<std::size_t>(entry.buffer)];
  const Axis& axis = mesh.axis("dp_shard_cp");
  std::vector<std::int64_t> counts;
  for (int r = 0; r < axis.size; ++r) {
    const Range slice = shard_range(buffer.elements, r, axis.size);
    const std::int64_t end = entry.at + shape.numel();
    counts.push_back(std::clamp(slice.end, entry.at, end) - std::clamp(slice.begin, entry.at, end));
  }
  const Tensor all = Tensor::empty(owned.context(), {shape.numel()}, owned.dtype(), Category::communication);
  axis.group->all_gather(owned, all, counts);
  return all.reshaped(shape);
}

void take_owned(const Tensor& held, const ParamStore::Entry& entry, const Tensor& owned) {
  owned.copy_from(held.flat_view(entry.offset, {entry.count}));
}

bool divided(const Param& param) {
  return std::any_of(param.layout.begin(), param.layout.end(),
                     [](const AxisPlacement& at) { return at.placement.kind == Placement::shard_kind; });
}

Tensor merged(const Tensor& part, const Param& param, const Mesh& mesh) {
  Tensor whole = part;
  for (auto at = param.layout.rbegin(); at != param.layout.rend(); ++at)
    if (at->placement.kind == Placement::shard_kind)
      whole = moved(whole, mesh.axis(at->axis), at->placement, placement::copy, at->whole);
  return whole;
}

Tensor part_of(const Tensor& whole, const Param& param) {
  const Shape &global = param.global, &size = param.box.size;
  require(whole.shape() == global, "part_of", whole, " for a parameter of shape ", global);
  Tensor part = Tensor::empty(whole.context(), size, whole.dtype());
  const std::size_t element = size_of(whole.dtype());
  const auto at = [element](const Tensor& t, std::int64_t i) {
    return static_cast<char*>(t.data()) + static_cast<std::size_t>(i) * element;
  };
  for_each_run(global, param.box, [&](std::int64_t first, std::int64_t offset, std::int64_t count) {
    std::memcpy(at(part, offset), at(whole, first), static_cast<std::size_t>(count) * element);
  });
  return part;
}

}  // namespace chorus
