#include <chorus/nn/store_blocks.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace chorus::detail {
namespace {

/// Axes along which ranks still have to sum gradients of the block.
std::string summed_axes(const Block& block) {
  std::set<std::string> axes;
  for (const auto& [path, param] : block.params)
    for (const auto& at : param->layout)
      if (at.placement == placement::copy) axes.insert(at.axis);
  std::string out;
  for (const auto& axis : axes) out += (out.empty() ? "" : " ") + axis;
  return out;
}

/// Blocks of one unit that train or not, and whose gradients are summed along the same axes: all ranks of those axes cut such
/// a buffer at the same elements.
struct Gathering {
  std::string unit;
  bool trainable;
  UnitTypes types;
  std::vector<Block*> blocks;
};

std::vector<Gathering> gatherings_of(std::vector<Block>& blocks) {
  std::vector<Gathering> out;
  std::map<std::tuple<std::string, bool, std::string>, std::size_t> known;
  for (auto& block : blocks) {
    const auto [at, fresh] = known.try_emplace({block.unit, block.trainable, summed_axes(block)}, out.size());
    if (fresh) out.push_back({block.unit, block.trainable, block.types, {}});
    out[at->second].blocks.push_back(&block);
  }
  return out;
}

std::int64_t elements_of(const Gathering& gathering) {
  std::int64_t n = 0;
  for (const Block* block : gathering.blocks) n = aligned(n) + block->count();
  return n;
}

/// A flat array, handed out from its beginning.
struct Flat {
  Tensor memory;
  std::int64_t at = 0;
  Tensor take(std::int64_t count) { return memory.flat_view(std::exchange(at, at + aligned(count)), {count}); }
};

class ShardedStore {
 public:
  ShardedStore(Context& context, const MaterializeOptions& options, std::vector<Gathering> gatherings)
      : context_(context), options_(options), share_(*options.shard), gatherings_(std::move(gatherings)) {
    store_.context = &context;
    store_.offload_folder = options.offload_folder;
  }

  ParamStore make() {
    store_.wide = wide(options_.dtype);
    for (const auto& gathering : gatherings_) {
      FlatBuffer& buffer = store_.flat_buffers.emplace_back();
      buffer.unit = gathering.unit;
      buffer.trainable = gathering.trainable;
      buffer.elements = elements_of(gathering);
      buffer.types = gathering.types;
      buffer.owned = shard_range(buffer.elements, share_.rank, share_.size);
      if (buffer.trainable) buffer.first = std::exchange(store_.state_size, store_.state_size + aligned(buffer.owned.count()));
      if (share_.values) sizes_[{buffer.trainable, buffer.types.values}] += aligned(buffer.owned.count());
      if (has_masters(buffer)) masters_size_ = masters_size_.value_or(0) + aligned(buffer.owned.count());
    }
    for (const auto& [kind, count] : sizes_) owners_[kind] = {zeros(count, kind.second, Category::parameters)};
    if (masters_size_) masters_.memory = store_.new_state(*masters_size_, "masters");
    for (std::size_t b = 0; b < gatherings_.size(); ++b) fill(b);
    store_.values = owners_[{true, options_.dtype}].memory;
    store_.frozen_values = owners_[{false, options_.dtype}].memory;
    store_.masters = masters_.memory ? masters_.memory : store_.values;
    return std::move(store_);
  }

 private:
  Tensor zeros(std::int64_t count, DType dtype, Category category) { return Tensor::zeros(context_, {count}, dtype, category); }

  bool has_masters(const FlatBuffer& buffer) const {
    return buffer.trainable && options_.precision.masters && buffer.types.values != store_.wide;
  }

  void fill(std::size_t b) {
    FlatBuffer& buffer = store_.flat_buffers[b];
    const DType dtype = buffer.types.values;
    const std::int64_t owned = buffer.owned.count();
    // What this rank owns lies in the whole buffer, if it always has that, else in an array of its own.
    if (share_.values) {
      buffer.values = Tensor::released(context_, {buffer.elements}, dtype, Category::communication);
      buffer.part = owners_.at({buffer.trainable, dtype}).take(owned);
    } else {
      buffer.values = zeros(buffer.elements, dtype, Category::parameters);
      buffer.part = buffer.values.flat_view(buffer.owned.begin, {owned});
    }
    const Tensor masters = has_masters(buffer) ? masters_.take(owned) : buffer.part;
    std::int64_t at = 0;
    for (Block* block : gatherings_[b].blocks) {
      at = aligned(at);
      if (buffer.trainable) {
        buffer.leaves.push_back(store_.leaves.size());
        buffer.leaf_firsts.push_back(at);
      }
      take_views(*block, buffer.values, at, store_);
      for (auto& [path, param] : block->params) {
        add(b, path, *param, at, masters);
        at += param->box.size.numel();
      }
    }
  }

  /// `param` begins at element `at` of buffer `b`; `masters` are of the buffer's part.
  void add(std::size_t b, const std::string& path, Param& param, std::int64_t at, const Tensor& masters) {
    const FlatBuffer& buffer = store_.flat_buffers[b];
    const std::int64_t whole = param.box.size.numel();
    const std::int64_t begin = std::clamp(buffer.owned.begin, at, at + whole),
                       end = std::clamp(buffer.owned.end, begin, at + whole);
    const std::int64_t in_part = std::clamp<std::int64_t>(begin - buffer.owned.begin, 0, buffer.owned.count());
    ParamStore::Entry entry;
    entry.param = &param;
    entry.path = path;
    entry.first = buffer.first + in_part;
    entry.count = end - begin;
    entry.offset = begin - at;
    entry.buffer = static_cast<int>(b);
    entry.at = at;
    entry.value = buffer.part.flat_view(in_part, {entry.count});
    entry.master = masters.flat_view(in_part, {entry.count});
    if (entry.count > 0)
      fill_initial(context_, param, random_key(options_.seed, path), entry.offset, entry.master, entry.value);
    (buffer.trainable ? store_.trainable : store_.frozen).push_back(std::move(entry));
  }

  Context& context_;
  const MaterializeOptions& options_;
  const StoreShard share_;
  std::vector<Gathering> gatherings_;
  std::map<std::pair<bool, DType>, std::int64_t> sizes_;  // of what this rank owns, by whether it trains and by type
  std::map<std::pair<bool, DType>, Flat> owners_;
  std::optional<std::int64_t> masters_size_;  // of this rank; 0 where only others own elements that have masters
  Flat masters_;
  ParamStore store_;
};

}  // namespace

StoreSize sharded_size(std::vector<Block>& blocks, StoreSize size) {
  size.trainable = size.frozen = {};
  for (const Gathering& gathering : gatherings_of(blocks)) {
    size.flats.push_back({gathering.unit, gathering.trainable, gathering.types.values, elements_of(gathering)});
    (gathering.trainable ? size.trainable : size.frozen).add(size.flats.back().elements, gathering.types.values);
  }
  return size;
}

ParamStore materialize_sharded(Context& context, const Declared& declared, const MaterializeOptions& options) {
  auto blocks = blocks_of(declared, options.dtype, options.precision);
  apply_rules(blocks, declared, options.freeze);
  ParamStore store = ShardedStore(context, options, gatherings_of(blocks)).make();
  // Buffers have an order of their own; names, hashes and checkpoints go by the model's.
  std::map<const Param*, std::size_t> place;
  for (const auto& block : blocks)
    for (const auto& [path, param] : block.params) place.emplace(param, place.size());
  for (auto* entries : {&store.trainable, &store.frozen})
    std::sort(entries->begin(), entries->end(),
              [&](const auto& a, const auto& b) { return place.at(a.param) < place.at(b.param); });
  give_buffers(context, declared, store.wide, store);
  name_dropouts(declared, blocks);
  return store;
}

}  // namespace chorus::detail

namespace chorus {

StoreSize::Owned StoreSize::owned(int rank, int size) const {
  if (flats.empty()) return {trainable, frozen};
  Owned out;
  for (const Flat& flat : flats)
    (flat.trainable ? out.trainable : out.frozen)
        .add(detail::aligned(shard_range(flat.elements, rank, size).count()), flat.values);
  return out;
}

}  // namespace chorus
