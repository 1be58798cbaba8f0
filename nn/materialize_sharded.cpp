#include <chorus/nn/store_blocks.h>
#include <chorus/tensor/kernels/pointwise.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace chorus::detail {
namespace {

/// The innermost unit around a parameter; the root, "", is around all.
std::string unit_of(const std::string& path, const std::vector<std::string>& units) {
  std::string found;
  for (const auto& unit : units)
    if (unit.size() > found.size() && path.starts_with(unit + '.')) found = unit;
  return found;
}

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
  std::vector<Block*> blocks;
};

std::vector<Gathering> gatherings_of(std::vector<Block>& blocks, const Declared& declared) {
  std::vector<Gathering> out;
  std::map<std::tuple<std::string, bool, std::string>, std::size_t> known;
  for (auto& block : blocks) {
    const std::string unit = unit_of(block.params.front().first, declared.units);
    const auto [at, fresh] = known.try_emplace({unit, block.trainable, summed_axes(block)}, out.size());
    if (fresh) out.push_back({unit, block.trainable, {}});
    out[at->second].blocks.push_back(&block);
  }
  return out;
}

std::int64_t elements_of(const Gathering& gathering) {
  std::int64_t n = 0;
  for (const Block* block : gathering.blocks) n = aligned(n) + block->count();
  return n;
}

class ShardedStore {
 public:
  ShardedStore(Context& context, const MaterializeOptions& options, std::vector<Gathering> gatherings)
      : context_(context), options_(options), share_(*options.shard), gatherings_(std::move(gatherings)) {
    store_.context = &context;
    store_.offload_folder = options.offload_folder;
  }

  ParamStore make() {
    std::int64_t frozen = 0;
    for (const auto& gathering : gatherings_) {
      FlatBuffer& buffer = store_.flat_buffers.emplace_back();
      buffer.unit = gathering.unit;
      buffer.trainable = gathering.trainable;
      buffer.elements = elements_of(gathering);
      buffer.owned = shard_range(buffer.elements, share_.rank, share_.size);
      std::int64_t& first = buffer.trainable ? store_.state_size : frozen;
      buffer.first = first;
      first += aligned(buffer.owned.count());
    }
    const DType wide_type = wide(options_.dtype);
    const bool two_types = wide_type != options_.dtype;
    if (share_.values) {
      store_.values = zeros(store_.state_size, options_.dtype, Category::parameters);
      store_.frozen_values = zeros(frozen, options_.dtype, Category::parameters);
    }
    if (two_types)
      store_.masters = store_.new_state(wide_type, "masters");
    else
      store_.masters = store_.values;
    for (std::size_t b = 0; b < gatherings_.size(); ++b) fill(b);
    return std::move(store_);
  }

 private:
  Tensor zeros(std::int64_t count, DType dtype, Category category) { return Tensor::zeros(context_, {count}, dtype, category); }

  void fill(std::size_t b) {
    FlatBuffer& buffer = store_.flat_buffers[b];
    buffer.values = share_.values ? Tensor::released(context_, {buffer.elements}, options_.dtype, Category::communication)
                                  : zeros(buffer.elements, options_.dtype, Category::parameters);
    // What this rank owns lies in the whole buffer, if it always has that, else in an array of its own.
    const Tensor& owners = buffer.trainable ? store_.values : store_.frozen_values;
    buffer.part = share_.values ? owners.flat_view(buffer.first, {buffer.owned.count()})
                                : buffer.values.flat_view(buffer.owned.begin, {buffer.owned.count()});
    std::int64_t at = 0;
    for (Block* block : gatherings_[b].blocks) {
      at = aligned(at);
      if (buffer.trainable) {
        buffer.leaves.push_back(store_.leaves.size());
        buffer.leaf_firsts.push_back(at);
      }
      take_views(*block, buffer.values, at, store_);
      for (auto& [path, param] : block->params) {
        add(b, path, *param, at);
        at += param->box.size.numel();
      }
    }
  }

  /// `param` begins at element `at` of buffer `b`.
  void add(std::size_t b, const std::string& path, Param& param, std::int64_t at) {
    const FlatBuffer& buffer = store_.flat_buffers[b];
    const std::int64_t whole = param.box.size.numel();
    const std::int64_t begin = std::clamp(buffer.owned.begin, at, at + whole),
                       end = std::clamp(buffer.owned.end, begin, at + whole);
    const std::int64_t in_part = std::min(begin - buffer.owned.begin, buffer.owned.count());
    ParamStore::Entry entry;
    entry.param = &param;
    entry.path = path;
    entry.first = buffer.first + std::max<std::int64_t>(0, in_part);
    entry.count = end - begin;
    entry.offset = begin - at;
    entry.buffer = static_cast<int>(b);
    entry.at = at;
    entry.value = buffer.part.flat_view(entry.first - buffer.first, {entry.count});
    const bool two_types = wide(options_.dtype) != options_.dtype;
    entry.master = buffer.trainable && two_types ? store_.masters.flat_view(entry.first, {entry.count}) : entry.value;
    if (entry.count > 0) {
      const Tensor wide_values = two_types && !buffer.trainable
                                     ? Tensor::empty(context_, {entry.count}, wide(options_.dtype), Category::workspace)
                                     : entry.master;
      fill_initial(param, random_key(options_.seed, path), entry.offset, wide_values);
      if (two_types) kernel::accumulate(cpu(context_, "materialize"), wide_values, false, entry.value);
      wide_values.let_go();
    }
    (buffer.trainable ? store_.trainable : store_.frozen).push_back(std::move(entry));
  }

  Context& context_;
  const MaterializeOptions& options_;
  const StoreShard share_;
  std::vector<Gathering> gatherings_;
  ParamStore store_;
};

}  // namespace

StoreSize sharded_size(std::vector<Block>& blocks, const Declared& declared, StoreSize size) {
  size.trainable = size.frozen = 0;
  for (const Gathering& gathering : gatherings_of(blocks, declared)) {
    size.flats.push_back({gathering.unit, gathering.trainable, elements_of(gathering)});
    (gathering.trainable ? size.trainable : size.frozen) += size.flats.back().elements;
  }
  return size;
}

ParamStore materialize_sharded(Context& context, const Declared& declared, const MaterializeOptions& options) {
  auto blocks = blocks_of(declared);
  apply_rules(blocks, declared, options.freeze);
  ParamStore store = ShardedStore(context, options, gatherings_of(blocks, declared)).make();
  // Buffers have an order of their own; names, hashes and checkpoints go by the model's.
  std::map<const Param*, std::size_t> place;
  for (const auto& block : blocks)
    for (const auto& [path, param] : block.params) place.emplace(param, place.size());
  for (auto* entries : {&store.trainable, &store.frozen})
    std::sort(entries->begin(), entries->end(),
              [&](const auto& a, const auto& b) { return place.at(a.param) < place.at(b.param); });
  give_buffers(context, declared, wide(options.dtype), store);
  name_dropouts(declared, blocks);
  return store;
}

}  // namespace chorus::detail

namespace chorus {

StoreSize::Owned StoreSize::owned(int rank, int size) const {
  if (flats.empty()) return {trainable, frozen};
  Owned out;
  for (const Flat& flat : flats)
    (flat.trainable ? out.trainable : out.frozen) += detail::aligned(shard_range(flat.elements, rank, size).count());
  return out;
}

}  // namespace chorus
