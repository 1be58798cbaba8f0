#include <chorus/apps/whole_tensors.h>
#include <chorus/parallel/merge.h>

namespace chorus {

Tensor WholeTensors::next() {
  const auto& [name, tensor, entry] = parts_.at(next_++);
  if (!entry) return tensor;
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

void WholeTensors::skip_rest() {
  while (next_ < parts_.size()) next();
}

void fill_part(const NamedPart& part, const std::function<void(const Tensor& whole)>& fill) {
  if (!part.entry) return fill(part.tensor);
  const Param& param = *part.entry->param;
  if (part.entry->buffer < 0 && !divided(param)) return fill(part.tensor.reshaped(param.global));
  const Tensor whole = Tensor::empty(part.tensor.context(), param.global, part.tensor.dtype(), Category::workspace);
  fill(whole);
  take_owned(part_of(whole, param), *part.entry, part.tensor);
}

}  // namespace chorus
