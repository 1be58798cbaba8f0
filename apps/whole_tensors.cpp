#include <chorus/apps/whole_tensors.h>
#include <chorus/parallel/merge.h>

namespace chorus {

NamedTensors whole_tensors(const std::vector<NamedPart>& parts, const ParamStore& store, const Mesh& mesh) {
  NamedTensors wholes;
  for (const auto& [name, tensor, entry] : parts) {
    if (!entry) {
      wholes.push_back({name, tensor});
      continue;
    }
    const Tensor own = held(tensor, *entry, store, mesh);
    wholes.push_back({name, divided(*entry->param) ? merged(own.clone(), *entry->param, mesh) : own});
  }
  return wholes;
}

void fill_parts(const std::vector<NamedPart>& parts, const std::function<void(const NamedTensors&)>& fill) {
  const auto all_of = [](const NamedPart& part) {
    return !part.entry || (part.entry->buffer < 0 && !divided(*part.entry->param));
  };
  NamedTensors wholes;
  for (const auto& part : parts) {
    Tensor whole = part.tensor;
    if (part.entry) {
      const Shape& shape = part.entry->param->global;
      whole = all_of(part) ? whole.reshaped(shape) : Tensor::empty(whole.context(), shape, whole.dtype(), Category::workspace);
    }
    wholes.push_back({part.name, std::move(whole)});
  }
  fill(wholes);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (!all_of(parts[i])) take_owned(part_of(wholes[i].second, *parts[i].entry->param), *parts[i].entry, parts[i].tensor);
}

}  // namespace chorus
