#pragma once
#include <chorus/core/config/check.h>
#include <chorus/parallel/make_data_parallel.h>

#include <algorithm>

namespace chorus {

/// How a run is shared out over ranks. Names as in NeMo Automodel's distributed configuration and Megatron's DDP.
struct ParallelConfig {
  int dp_size = 0, tp_size = 0;
  int data_parallel_size = 0, tensor_parallel_size = 0;  ///< other names of the same
  bool sequence_parallel = false, tp_comm_overlap = false;
  std::string sharding = "none";
  int dp_replicate_size = 1;
  double time_limit_seconds = 1800;
  std::int64_t check_replicas_every_n_steps = 1000;
  DdpOptions ddp;
  ShardingOptions fsdp;

  template <class V>
  void fields(V&& v) {
    v("dp_size", dp_size, "ranks that share out the samples; 0: what tp_size leaves", between(0, 1 << 20));
    v("tp_size", tp_size, "ranks that share out every layer; 0: 1", between(0, 1 << 20));
    v("data_parallel_size", data_parallel_size, "another name of dp_size", between(0, 1 << 20));
    v("tensor_parallel_size", tensor_parallel_size, "another name of tp_size", between(0, 1 << 20));
    v("sequence_parallel", sequence_parallel, "rows between the layers' products are shared out too");
    v("tp_comm_overlap", tp_comm_overlap, "gradients of activations are exchanged while those of weights are computed");
    v("time_limit_seconds", time_limit_seconds,
      "how long a rank waits for others before it ends the run, naming them and what it waits for", greater_than(0.0));
    v("check_replicas_every_n_steps", check_replicas_every_n_steps,
      "steps after which ranks compare what they hold alike, by its hash; a difference ends the run; 0: never", at_least(0));
    v("sharding", sharding,
      "what data-parallel ranks share out: optimizer (ZeRO-1), gradients (ZeRO-2), full (ZeRO-3, FSDP): parameters, too",
      one_of("none", "optimizer", "gradients", "full"));
    v("dp_replicate_size", dp_replicate_size, "groups of data-parallel ranks, each of which shares out all of it (HSDP)",
      between(1, 1 << 20));
    v("ddp", ddp, "sums of gradients over data-parallel ranks, with sharding = \"none\"");
    v("fsdp", fsdp, "the other shardings");
  }
  template <class Check>
  void rules(Check&& check) const {
    check(dp_size == 0 || data_parallel_size == 0 || dp_size == data_parallel_size, "data_parallel_size", data_parallel_size,
          ", but dp_size is ", dp_size);
    check(tp_size == 0 || tensor_parallel_size == 0 || tp_size == tensor_parallel_size, "tensor_parallel_size",
          tensor_parallel_size, ", but tp_size is ", tp_size);
    check(!sequence_parallel || tp() > 1, "sequence_parallel", "needs a tp_size of more than 1");
    check(dp_replicate_size == 1 || sharding != "none", "dp_replicate_size", dp_replicate_size,
          " is for a sharding other than \"none\"");
    check(fsdp.reshard_after_forward == "auto" || sharding == "full", "fsdp.reshard_after_forward", fsdp.reshard_after_forward,
          " is for sharding = \"full\"; it is \"", sharding, '"');
    check(fsdp.overlap || sharding != "none", "fsdp.overlap", "is for a sharding other than \"none\"");
    check(ddp.bucket_size == DdpOptions{}.bucket_size || sharding == "none", "ddp.bucket_size", ddp.bucket_size,
          " is for sharding = \"none\"; it is \"", sharding, '"');
    check(!fsdp.defer_grad_sync || sharding == "full" || sharding == "gradients", "fsdp.defer_grad_sync",
          "is for sharding = \"gradients\" and \"full\"; it is \"", sharding, '"');
    check(ddp.find_unused_parameters || sharding == "none", "ddp.find_unused_parameters",
          "is for sharding = \"none\"; it is \"", sharding, '"');
    check(!tp_comm_overlap || tp() > 1, "tp_comm_overlap", "needs a tp_size of more than 1");
  }
  int dp() const { return dp_size ? dp_size : data_parallel_size; }
  int tp() const { return std::max(1, tp_size ? tp_size : tensor_parallel_size); }
  MeshSizes sizes() const {
    MeshSizes sizes;
    sizes.dp = dp();
    sizes.tp = tp();
    sizes.dp_replicate = dp_replicate_size;
    return sizes;
  }
  /// "TP2 SP DP4 FSDP"
  std::string layout(const MeshShape& shape) const {
    const std::string ranks = shape.describe(sequence_parallel);
    return sharding == "none" ? ranks
                              : ranks + (sharding == "full"        ? " FSDP"
                                         : sharding == "gradients" ? " ZeRO-2"
                                                                   : " ZeRO-1");
  }
  DataParallelOptions data_parallel() const { return {.sharding = sharding_of(sharding), .ddp = ddp, .shards = fsdp}; }
};

}  // namespace chorus
