// What `materialize` gives memory to: blocks of parameters that lie together, and their first values.
#pragma once
#include <chorus/nn/materialize.h>

namespace chorus::detail {

constexpr std::int64_t block_alignment = 64;  // elements: whole cache lines for every type
constexpr std::int64_t aligned(std::int64_t n) { return (n + block_alignment - 1) / block_alignment * block_alignment; }

/// One parameter, or the parts of a Stacked.
struct Block {
  std::vector<std::pair<std::string, Param*>> params;
  Stacked* stacked = nullptr;
  std::string unit;  ///< the innermost around it
  UnitTypes types;
  bool trainable = true;
  std::int64_t count() const;  ///< elements that this rank holds
  Param& leaf() const { return stacked ? stacked->fused : *params.front().second; }
};
/// With their units, and these units' types; the units are told, too.
std::vector<Block> blocks_of(const Declared& declared, DType dtype, const Precision& precision);

/// Says of each parameter whether it trains.
StoreSize apply_rules(std::vector<Block>& blocks, const Declared& declared, const FreezeRules& rules);

/// What this rank holds of the parts, one under another.
Shape fused_shape(const Block& block);
/// How the fused tensor lies: on each axis as its first part does. Parts that lie otherwise there (k and v, which some ranks
/// of an axis repeat where q is sharded) meet only ops that read each part by itself.
std::shared_ptr<const Layout> layout_of(const Block& block);

/// First values of elements [begin, begin + value.numel()) of what this rank holds of `param`: exact in `master`, rounded in
/// `value`, which may be the same memory; a master in a file goes there. They depend on an element's place in the whole
/// parameter, whatever part of it this is.
void fill_initial(Context& context, const Param& param, RandomKey key, std::int64_t begin, const Tensor& master, Tensor value);

/// Gives the block its views of `values`, where it begins at element `first`, and its leaf if it trains.
void take_views(Block& block, const Tensor& values, std::int64_t first, ParamStore& store);

/// Buffers and dropouts, which lie alike on all ranks.
void give_buffers(Context& context, const Declared& declared, DType wide_type, ParamStore& store);
void name_dropouts(const Declared& declared, const std::vector<Block>& blocks);

/// The same of a sharded store, after `apply_rules`.
StoreSize sharded_size(std::vector<Block>& blocks, StoreSize size);
/// As `materialize`, for one of the ranks that share out the store.
ParamStore materialize_sharded(Context& context, const Declared& declared, const MaterializeOptions& options);

}  // namespace chorus::detail
