#include <chorus/core/rng.h>
#include <chorus/nn/box_runs.h>
#include <chorus/nn/path_patterns.h>
#include <chorus/nn/store_blocks.h>
#include <chorus/tensor/kernels/pointwise.h>

#include <algorithm>
#include <set>
#include <utility>

namespace chorus::detail {

std::string unit_path(const std::string& path) {
  for (const std::string end : {".unit", "_unit"})
    if (path.ends_with(end)) return path.substr(0, path.size() - end.size());
  require(path == "unit", "materialize", "the unit ", path, "; its name is 'unit' or ends with '_unit'");
  return "";
}

namespace {
/// The innermost unit around a parameter; the root, "", is around all.
std::string unit_of(const std::string& path, const Declared& declared) {
  std::string found;
  for (const auto& [unit, of] : declared.units)
    if (unit.size() > found.size() && path.starts_with(unit + '.')) found = unit;
  return found;
}
}  // namespace

std::int64_t Block::count() const {
  std::int64_t n = 0;
  for (const auto& [path, param] : params) n += param->box.size.numel();
  return n;
}

std::vector<Block> blocks_of(const Declared& declared, DType dtype, const Precision& precision) {
  const auto types = types_of_units(declared.units, dtype, precision);
  tell_units(declared.units, types);
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
    if (block.params.empty()) continue;
    block.unit = unit_of(block.params.front().first, declared);
    block.types = types.at(block.unit);
    blocks.push_back(std::move(block));
  }
  return blocks;
}

StoreSize apply_rules(std::vector<Block>& blocks, const Declared& declared, const FreezeRules& rules) {
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
    (block.trainable ? size.trainable : size.frozen).add(aligned(block.count()), block.types.values);
    if (block.trainable) size.trained += block.count();
  }
  for (const auto& [path, buffer] : declared.buffers) size.buffers += buffer->global.numel();
  return size;
}

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

std::shared_ptr<const Layout> layout_of(const Block& block) {
  const Param& first = *block.params.front().second;
  if (first.layout.empty()) return nullptr;
  Layout layout = first.layout;
  for (auto& axis : layout)
    if (axis.placement == placement::shard(0)) axis.parts = static_cast<int>(block.params.size());
  return std::make_shared<const Layout>(std::move(layout));
}

void fill_initial(Context& context, const Param& param, RandomKey key, std::int64_t begin, const Tensor& master, Tensor value) {
  const Init& init = param.init;
  const DType wide_type = wide(value.dtype());
  const Tensor values =
      master.dtype() == wide_type ? master : Tensor::empty(context, {value.numel()}, wide_type, Category::workspace);
  const std::int64_t end = begin + values.numel();
  dispatch<float, double>(values.dtype(), "initialise", [&]<class T>() {
    const auto all = values.span<T>();
    for_each_run(param.global, param.box, [&](std::int64_t first, std::int64_t offset, std::int64_t count) {
      const std::int64_t from = std::max(begin, offset), to = std::min(end, offset + count);
      if (from >= to) return;
      const auto out = all.subspan(static_cast<std::size_t>(from - begin), static_cast<std::size_t>(to - from));
      const auto counter = static_cast<std::uint64_t>(first + from - offset);
      switch (init.kind) {
        case Init::zeros: std::fill(out.begin(), out.end(), T{0}); break;
        case Init::constant: std::fill(out.begin(), out.end(), static_cast<T>(init.value)); break;
        case Init::normal: fill_normal(key, counter, out, 0.0, init.value); break;
        case Init::uniform: fill_uniform(key, counter, out, -init.value, init.value); break;
      }
    });
  });
  if (value.dtype() != wide_type) kernel::accumulate(cpu(context, "materialize"), values, false, value);
  master.let_go();
}

void take_views(Block& block, const Tensor& values, std::int64_t first, ParamStore& store) {
  const auto layout = layout_of(block);
  std::int64_t at = first;
  for (auto& [path, param] : block.params) {
    param->path = path;
    param->leaf = nullptr;
    param->value = values.flat_view(at, param->box.size);
    if (!block.stacked) param->value.set_layout(layout);
    at += param->box.size.numel();
  }
  Param& leaf = block.leaf();
  if (block.stacked) {
    leaf.box = Box::whole(fused_shape(block));
    leaf.global = leaf.box.size;
    leaf.trainable = block.trainable;
    leaf.value = values.flat_view(first, leaf.global);
    leaf.value.set_layout(layout);
  }
  if (!block.trainable) return;
  make_leaf(leaf.value);
  store.leaves.push_back(leaf.value.node());
  store.leaf_reduces.push_back(block.types.reduce);
  std::int64_t part = 0;
  for (auto& [path, param] : block.params) {
    param->leaf = leaf.value.node();
    param->leaf_first = std::exchange(part, part + param->box.size.numel());
  }
}

void give_buffers(Context& context, const Declared& declared, DType wide_type, ParamStore& store) {
  for (const auto& [path, buffer] : declared.buffers)
    buffer->value = Tensor::full(context, buffer->global, wide_type, buffer->initial, Category::parameters);
  store.buffers = declared.buffers;
}

void name_dropouts(const Declared& declared, const std::vector<Block>& blocks) {
  for (const auto& [path, dropout] : declared.dropouts) {
    dropout->path = path_hash(path);
    const std::string prefix = parent(path).empty() ? "" : parent(path) + '.';
    bool any = false, trains = false;
    for (const auto& block : blocks)
      for (const auto& [name, param] : block.params)
        if (name.starts_with(prefix)) any = true, trains = trains || param->trainable;
    dropout->frozen = any && !trains;
  }
}

}  // namespace chorus::detail
