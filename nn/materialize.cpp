#include <chorus/nn/store_blocks.h>
#include <chorus/tensor/kernels/pointwise.h>

namespace chorus {

std::int64_t ParamStore::trainable_count() const {
  std::int64_t n = 0;
  for (const auto& entry : trainable) n += entry.param->global.numel();
  return n;
}

std::int64_t ParamStore::frozen_count() const {
  std::int64_t n = 0;
  for (const auto& entry : frozen) n += entry.param->global.numel();
  return n;
}

Tensor ParamStore::new_state(DType dtype, const std::string& name) const {
  return offload_folder.empty() ? Tensor::zeros(*context, {state_size}, dtype, Category::optimizer)
                                : Tensor::in_file(*context, {state_size}, dtype, offload_folder, name);
}

void ParamStore::start_step() const {
  for (const auto& leaf : leaves) leaf->sink.grad = {}, leaf->sink.written = false;
}

void ParamStore::finish_step() const {
  for (const auto& leaf : leaves) {
    if (!leaf->sink.written) leaf->sink.in(*context, leaf->shape).fill(0);
    leaf->sink.written = true;
  }
}

Tensor ParamStore::gradient(const Entry& entry) const {
  if (!flat_buffers.empty()) return grads ? grads.flat_view(entry.first, {entry.count}) : Tensor();
  const Tensor grad = entry.param->grad();
  return grad ? grad.flat_view(0, {entry.count}) : Tensor();
}

void ParamStore::masters_to_values() const {
  for (const auto& entry : trainable) {
    if (entry.count == 0 || entry.master.dtype() == entry.value.dtype()) continue;
    Tensor target = entry.value;
    kernel::accumulate(cpu(*context, "masters_to_values"), entry.master, false, target);
    entry.master.let_go();
  }
}

namespace detail {

StoreSize store_size(const Declared& declared, const FreezeRules& rules, bool sharded) {
  auto blocks = blocks_of(declared);
  const StoreSize size = apply_rules(blocks, declared, rules);
  return sharded ? sharded_size(blocks, declared, size) : size;
}

void declare_unbacked(Context& context, const Declared& declared, DType dtype) {
  for (const auto& block : blocks_of(declared)) {
    const auto layout = layout_of(block);
    const auto give = [&](Param& param, const Shape& shape) {
      param.value = Tensor::unbacked(context, shape, dtype);
      param.value.set_layout(layout);
    };
    for (const auto& [path, param] : block.params) give(*param, param->box.size);
    if (block.stacked) give(block.stacked->fused, fused_shape(block));
  }
  for (const auto& [path, buffer] : declared.buffers) buffer->value = Tensor::zeros(context, buffer->global, wide(dtype));
}

ParamStore materialize(Context& context, const Declared& declared, const MaterializeOptions& options) {
  if (options.shard) return materialize_sharded(context, declared, options);
  ParamStore store;
  store.context = &context;
  auto blocks = blocks_of(declared);
  const StoreSize size = apply_rules(blocks, declared, options.freeze);

  const DType wide_type = wide(options.dtype);
  store.values = Tensor::zeros(context, {size.trainable}, options.dtype, Category::parameters);
  store.state_size = size.trainable;
  store.offload_folder = options.offload_folder;
  store.masters = wide_type == options.dtype ? store.values : store.new_state(wide_type, "masters");
  store.frozen_values = Tensor::zeros(context, {size.frozen}, options.dtype, Category::parameters);

  std::int64_t trainable_at = 0, frozen_at = 0;
  for (auto& block : blocks) {
    auto& at = block.trainable ? trainable_at : frozen_at;
    const Tensor& flat = block.trainable ? store.values : store.frozen_values;
    take_views(block, flat, at, store);
    std::int64_t first = at;
    for (auto& [path, param] : block.params) {
      const std::int64_t count = param->box.size.numel();
      const Tensor value = flat.flat_view(first, {count});
      const Tensor master = block.trainable              ? store.masters.flat_view(first, {count})
                            : wide_type == options.dtype ? value
                                                         : Tensor::empty(context, {count}, wide_type, Category::workspace);
      fill_initial(*param, random_key(options.seed, path), 0, master);
      if (Tensor copy = value; master.data() != value.data())
        kernel::accumulate(cpu(context, "materialize"), master, false, copy);
      master.let_go();
      ParamStore::Entry& entry = (block.trainable ? store.trainable : store.frozen).emplace_back();
      entry.param = param;
      entry.path = path;
      entry.first = first;
      entry.count = count;
      entry.master = block.trainable ? master : value;
      entry.value = value;
      first += count;
    }
    at += aligned(block.count());
  }
  give_buffers(context, declared, wide_type, store);
  name_dropouts(declared, blocks);
  return store;
}

}  // namespace detail
}  // namespace chorus
