#pragma once
#include <chorus/parallel/ddp.h>
#include <chorus/parallel/sharded.h>

namespace chorus {

struct DataParallelOptions {
  Sharding sharding = Sharding::none;
  DdpOptions ddp = {};          ///< for Sharding::none
  ShardingOptions shards = {};  ///< for the others
  Group* group = nullptr;       ///< in place of the mesh's, dp_cp or dp_shard_cp: for tests
};

/// For a store that was materialised with `store_shard(options.sharding, mesh)`. `forward` gives the loss of a batch without
/// rows; only the sharded ones call it, now.
std::unique_ptr<DataParallel> make_data_parallel(ParamStore& store, const Mesh& mesh, const DataParallelOptions& options,
                                                 const std::function<Tensor()>& forward);

}  // namespace chorus
