#include <chorus/core/rng.h>
#include <chorus/nn/materialize.h>
#include <chorus/nn/path_patterns.h>
#include <chorus/tensor/kernels/pointwise.h>

#include <algorithm>
#include <set>
#include <utility>

namespace chorus {
namespace {

constexpr std::int64_t alignment = 64;  // elements: whole cache lines for every type

std::int64_t aligned(std::int64_t n) { return (n + alignment - 1) / alignment * alignment; }

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

/// Values depend on an element's place in the whole parameter, whatever part of it this is.
void fill_initial(const Param& param, RandomKey key, Tensor& master) {
  const Init& init = param.init;
  dispatch<float, double>(master.dtype(), "initialise", [&]<class T>() {
    const auto all = master.span<T>();
    for_each_run(param.global, param.box, [&](std::int64_t first, std::int64_t offset, std::int64_t count) {
      const auto out = all.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count));
      const auto counter = static_cast<std::uint64_t>(first);
      switch (init.kind) {
        case Init::zeros: std::fill(out.begin(), out.end(), T{0}); break;
        case Init::constant: std::fill(out.begin(), out.end(), static_cast<T>(init.value)); break;
        case Init::normal: fill_normal(key, counter, out, 0.0, init.value); break;
        case Init::uniform: fill_uniform(key, counter, out, -init.value, init.value); break;
      }
    });
  });
}

/// One parameter, or the parts of a Stacked: what must lie together.
struct Block {
  std::vector<std::pair<std::string, Param*>> params;
  Stacked* stacked = nullptr;
  bool trainable = true;
  std::int64_t count() const {
    std::int64_t n = 0;
    for (const auto& [path, param] : params) n += param->box.size.numel();
    return n;
  }
};

std::vector<Block> blocks_of(const detail::Declared& declared) {
  std::vector<Block> blocks;
  for (const auto& item : declared.items) {
    Block block;
    block.stacked = item.stacked;
    if (item.param) {
      block.params.push_back({item.path, item.param});
    } else {
      for (std::size_t i = 0; i < item.part_paths.size(); ++i)
        block.params.push_back({item.part_paths[i], &item.stacked->parts[i].second});
    }
    if (!block.params.empty()) blocks.push_back(std::move(block));
  }
  return blocks;
}

/// What this rank holds of the parts, one under another.
Shape fused_shape(const Block& block) {
  Shape shape = block.params.front().second->box.size;
  shape[0] = 0;
  for (const auto& [path, param] : block.params) {
    const Shape& part = param->box.size;
    require(part.rank() == shape.rank() && (shape.rank() < 2 || part[1] == shape[1]), "materialize", path, " has shape ", part,
            ", which can't be stacked under ", block.params.front().second->box.size);
    shape[0] += part[0];
  }
  return shape;
}

/// How the fused tensor lies: on each axis as its first part does. Parts that lie otherwise there (k and v, which some ranks
/// of an axis repeat where q is sharded) meet only ops that read each part by itself.
std::shared_ptr<const Layout> layout_of(const Block& block) {
  const Param& first = *block.params.front().second;
  if (first.layout.empty()) return nullptr;
  Layout layout = first.layout;
  for (auto& axis : layout)
    if (axis.placement == placement::shard(0)) axis.parts = static_cast<int>(block.params.size());
  return std::make_shared<const Layout>(std::move(layout));
}

/// Says of each parameter whether it trains.
StoreSize apply_rules(std::vector<Block>& blocks, const detail::Declared& declared, const FreezeRules& rules) {
  std::vector<std::string> paths;
  for (const auto& block : blocks)
    for (const auto& [path, param] : block.params) paths.push_back(path);
  std::set<std::string> unique(paths.begin(), paths.end());
  require(unique.size() == paths.size(), "materialize", "two parameters have the same path");
  const PathPatterns freeze("freeze_params", rules.freeze, paths), prevent("prevent_freeze_params", rules.prevent, paths);

  StoreSize size;
  for (auto& block : blocks) {
    for (const auto& [path, param] : block.params) param->trainable = !freeze.match(path) || prevent.match(path);
    block.trainable = block.params.front().second->trainable;
    for (const auto& [path, param] : block.params)
      require(param->trainable == block.trainable, "freeze", path, " is stacked with ", block.params.front().first,
              ": they are frozen together or not at all");
    (block.trainable ? size.trainable : size.frozen) += aligned(block.count());
  }
  for (const auto& [path, buffer] : declared.buffers) size.buffers += buffer->global.numel();
  return size;
}

}  // namespace

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

void ParamStore::start_step() const {
  for (const auto& leaf : leaves) leaf->sink.grad = {}, leaf->sink.written = false;
}

void ParamStore::finish_step() const {
  for (const auto& leaf : leaves) {
    if (!leaf->sink.written) leaf->sink.in(values.context(), leaf->shape).fill(0);
    leaf->sink.written = true;
  }
}

void ParamStore::masters_to_values() const {
  if (masters.data() == values.data()) return;
  Tensor target = values;
  kernel::accumulate(cpu(values.context(), "masters_to_values"), masters, false, target);
}

namespace detail {

StoreSize store_size(const Declared& declared, const FreezeRules& rules) {
  auto blocks = blocks_of(declared);
  return apply_rules(blocks, declared, rules);
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
  ParamStore store;
  auto blocks = blocks_of(declared);
  const auto [trainable_size, frozen_size, buffers_size] = apply_rules(blocks, declared, options.freeze);

  const DType wide_type = wide(options.dtype);
  store.values = Tensor::zeros(context, {trainable_size}, options.dtype, Category::parameters);
  store.masters =
      wide_type == options.dtype ? store.values : Tensor::zeros(context, {trainable_size}, wide_type, Category::optimizer);
  store.frozen_values = Tensor::zeros(context, {frozen_size}, options.dtype, Category::parameters);

  std::int64_t trainable_at = 0, frozen_at = 0;
  for (auto& block : blocks) {
    auto& at = block.trainable ? trainable_at : frozen_at;
    const Tensor& flat = block.trainable ? store.values : store.frozen_values;
    const auto layout = layout_of(block);
    std::int64_t first = at;
    for (auto& [path, param] : block.params) {
      param->path = path;
      param->leaf = nullptr;
      const Shape& size = param->box.size;
      param->value = flat.flat_view(first, size);
      if (!block.stacked) param->value.set_layout(layout);
      Tensor master =
          block.trainable ? store.masters.flat_view(first, size) : Tensor::empty(context, size, wide_type, Category::workspace);
      fill_initial(*param, random_key(options.seed, path), master);
      if (master.data() != param->value.data()) kernel::accumulate(cpu(context, "materialize"), master, false, param->value);
      (block.trainable ? store.trainable : store.frozen).push_back({param, path, first, size.numel()});
      first += size.numel();
    }
    Param& leaf = block.stacked ? block.stacked->fused : *block.params.front().second;
    if (block.stacked) {
      leaf.box = Box::whole(fused_shape(block));
      leaf.global = leaf.box.size;
      leaf.trainable = block.trainable;
      leaf.value = flat.flat_view(at, leaf.global);
      leaf.value.set_layout(layout);
    }
    if (block.trainable) {
      make_leaf(leaf.value);
      store.leaves.push_back(leaf.value.node());
      std::int64_t part = 0;
      for (auto& [path, param] : block.params) {
        param->leaf = leaf.value.node();
        param->leaf_first = std::exchange(part, part + param->box.size.numel());
      }
    }
    at += aligned(block.count());
  }

  for (const auto& [path, buffer] : declared.buffers)
    buffer->value = Tensor::full(context, buffer->global, wide_type, buffer->initial, Category::parameters);
  store.buffers = declared.buffers;
  for (const auto& [path, dropout] : declared.dropouts) {
    dropout->path = path_hash(path);
    const std::string prefix = parent(path).empty() ? "" : parent(path) + '.';
    bool any = false, trains = false;
    for (const auto& block : blocks)
      for (const auto& [name, param] : block.params)
        if (name.starts_with(prefix)) any = true, trains = trains || param->trainable;
    dropout->frozen = any && !trains;
  }
  return store;
}

}  // namespace detail
}  // namespace chorus
