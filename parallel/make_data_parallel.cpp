#include <chorus/parallel/make_data_parallel.h>

namespace chorus {

std::unique_ptr<DataParallel> make_data_parallel(ParamStore& store, const Mesh& mesh, const DataParallelOptions& options,
                                                 const std::function<Tensor()>& forward) {
  const bool shares = options.sharding != Sharding::none;
  Group& group = options.group ? *options.group : *mesh.axis(shares ? "dp_shard_cp" : "dp_cp").group;
  if (shares) return std::make_unique<ShardedDataParallel>(store, options.sharding, mesh, group, options.shards, forward);
  return std::make_unique<Ddp>(store, group, options.ddp, grad_sums(store, mesh), mesh.axis("model").group);
}

}  // namespace chorus
