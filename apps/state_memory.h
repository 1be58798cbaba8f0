// What one rank holds of a model's state, from shapes alone.
#pragma once
#include <chorus/apps/run_config.h>
#include <chorus/parallel/memory_formulas.h>

namespace chorus {

/// Bytes of one rank while a phase trains, gaps that align parameters included.
struct StateMemory {
  /// Values with statistics of batch norms; gradients when the last backward pass of a step has ended; masters and what the
  /// update rule remembers.
  StateBytes held;
  /// Values that come from other ranks for as long as they are read, most at a time: those of the root and of two neighbouring
  /// units; of one unit without parallel.fsdp.overlap; all that there are with reshard_after_forward = "never". (Of three units
  /// where an input is made again from the unit before; all of them in evaluation.)
  double gathered = 0;
  /// The other storage of gradients, most at a time. Where each microbatch's are summed, those not summed yet: of the root and
  /// of as many units. Where all of a rank's own samples are kept until the last microbatch, the sums of its slices.
  double second_gradients = 0;
};

/// `size` is sharded where `config.parallel` shards; the rank is number `rank` of `ranks` that share the store.
StateMemory state_memory(const RunConfig& config, const StoreSize& size, int rank, int ranks);

}  // namespace chorus
