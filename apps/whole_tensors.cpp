#include <chorus/apps/whole_tensors.h>
#include <chorus/parallel/merge.h>

namespace chorus {

Tensor WholeTensors::get(std::size_t part) {
  auto number = static_cast<std::int64_t>(part);
  tell(number);
  return gather(part);
}

void WholeTensors::end() {
  std::int64_t none = -1;
  tell(none);
}

void WholeTensors::serve() {
  for (std::int64_t part = 0; tell(part), part >= 0;) gather(static_cast<std::size_t>(part));
}

void WholeTensors::tell(std::int64_t& part) {
  given_.let_go();  // the part before has been written
  given_ = {};
  world_.broadcast(std::span<std::int64_t>(&part, 1), 0);
}

Tensor WholeTensors::gather(std::size_t part) {
  const auto& [name, tensor, entry] = parts_.at(part);
  if (!entry) return tensor;
  given_ = tensor;
  try {
    const Tensor own = held(tensor, *entry, store_, mesh_);
    return divided(*entry->param) ? merged(own.clone(), *entry->param, mesh_) : own;
  } catch (const GroupEnded&) {
    throw;
  } catch (const std::exception& error) {
    const std::string cause = "rank " + std::to_string(world_.rank()) + " can't gather " + name + ": " + error.what();
    world_.end_all(cause);
    throw GroupEnded(cause);
  }
}

void fill_part(const NamedPart& part, const std::function<void(const Tensor& whole)>& fill) {
  if (!part.entry) return fill(part.tensor);
  const Param& param = *part.entry->param;
  if (part.entry->buffer < 0 && !divided(param)) {
    fill(part.tensor.reshaped(param.global));
  } else {
    const Tensor whole = Tensor::empty(part.tensor.context(), param.global, part.tensor.dtype(), Category::workspace);
    fill(whole);
    take_owned(part_of(whole, param), *part.entry, part.tensor);
  }
  part.tensor.let_go();
}

}  // namespace chorus
