// The one primitive that communicates: it keeps the value that all ranks of an axis hold together and changes how it lies.
#pragma once
#include <chorus/parallel/mesh.h>
#include <chorus/tensor/autograd/node.h>

namespace chorus {

/// x, which lies on `axis` as its layout says, as `to`. Its gradient goes the other way: from dual(to) to dual(from). Of sums,
/// values are added in order of rank. An error names axis and placements: a layout that doesn't name the axis, a dim that an
/// inner axis divides further, a sharded dim of unknown size. Whoever saves the result of shard -> copy keeps its shard only,
/// which is gathered again in backward; where x is made again in backward and the way costs no exchange (same -> copy, a cut),
/// nothing is kept. `axis` must outlive the graph.
Tensor redistribute(Tensor x, const Axis& axis, Placement to);

/// The same on values, outside autograd and without layouts: `whole` is the size of the dim that `from` shards, over all ranks.
Tensor moved(Tensor x, const Axis& axis, Placement from, Placement to, std::int64_t whole = 0);

/// x with a layout: it lies as `placement` along `axis`, and as it did along others. For inputs.
Tensor placed(Tensor x, const Axis& axis, Placement placement, std::int64_t whole = 0);

}  // namespace chorus
