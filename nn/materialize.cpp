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

Tensor ParamStore::new_state(std::int64_t count, const std::string& name) const {
  return offload_folder.empty() ? Tensor::zeros(*context, {count}, wide, Category::optimizer)
                                : Tensor::in_file(*context, {count}, wide, offload_folder, name);
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

StoreSize store_size(const Declared& declared, const FreezeRules& rules, DType dtype, const Precision& precision,
                     bool sharded) {
  auto blocks = blocks_of(declared, dtype, precision);
  const StoreSize size = apply_rules(blocks, declared, rules);
  return sharded ? sharded_size(blocks, size) : size;
}

void declare_unbacked(Context& context, const Declared& declared, DType dtype, const Precision& precision) {
  for (const auto& block : blocks_of(declared, dtype, precision)) {
    const auto layout = layout_of(block);
    const auto give = [&](Param& param, const Shape& shape) {
      param.value = Tensor::unbacked(context, shape, block.types.values);
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
  store.wide = wide(options.dtype);
  store.offload_folder = options.offload_folder;
  auto blocks = blocks_of(declared, options.dtype, options.precision);
  const StoreSize size = apply_rules(blocks, declared, options.freeze);
  const bool narrow_model = options.dtype != store.wide;
  const auto zeros = [&](std::int64_t count, DType dtype) {
    return Tensor::zeros(context, {count}, dtype, Category::parameters);
  };
  // Two arrays, for trainable and for frozen parameters, and as many for those of units with the other type.
  struct Flat {
    Tensor memory;
    std::int64_t at = 0;
  };
  const DType other = narrow_model ? store.wide : DType::bf16;
  const auto of_model = [&](const StoreSize::Elements& e) { return narrow_model ? e.narrow : e.all - e.narrow; };
  const std::int64_t trainable = of_model(size.trainable), frozen = of_model(size.frozen);
  Flat own[] = {{zeros(trainable, options.dtype)}, {zeros(frozen, options.dtype)}};
  Flat others[] = {{zeros(size.trainable.all - trainable, other)}, {zeros(size.frozen.all - frozen, other)}};
  Flat masters{own[0].memory};
  if (options.precision.masters && size.trainable.narrow > 0)
    masters.memory = store.new_state(size.trainable.narrow, "masters");
  store.values = own[0].memory;
  store.frozen_values = own[1].memory;
  store.masters = masters.memory;
  store.state_size = size.trainable.all;

  std::int64_t state_at = 0;
  for (auto& block : blocks) {
    Flat& flat = (block.types.values == options.dtype ? own : others)[block.trainable ? 0 : 1];
    const bool has_masters = block.trainable && options.precision.masters && block.types.values != store.wide;
    take_views(block, flat.memory, flat.at, store);
    std::int64_t first = 0;
    for (auto& [path, param] : block.params) {
      ParamStore::Entry& entry = (block.trainable ? store.trainable : store.frozen).emplace_back();
      entry.param = param;
      entry.path = path;
      entry.first = (block.trainable ? state_at : flat.at) + first;
      entry.count = param->box.size.numel();
      entry.value = flat.memory.flat_view(flat.at + first, {entry.count});
      entry.master = has_masters ? masters.memory.flat_view(masters.at + first, {entry.count}) : entry.value;
      fill_initial(context, *param, random_key(options.seed, path), 0, entry.master, entry.value);
      first += entry.count;
    }
    const std::int64_t count = aligned(block.count());
    flat.at += count;
    if (block.trainable) state_at += count;
    if (has_masters) masters.at += count;
  }
  give_buffers(context, declared, store.wide, store);
  name_dropouts(declared, blocks);
  return store;
}

}  // namespace detail
}  // namespace chorus
