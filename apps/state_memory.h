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
  /// units. (Three units where an input is made again from the unit before; all of them in evaluation, and if they stay.)
  double gathered = 0;
  /// The other storage of gradients, most at a time: those of two neighbouring units, one of which is summed, where each
  /// microbatch is; else the sums of this rank's slices, beside all gradients of its own samples.
  double second_gradients = 0;
};

/// `size` is sharded where `config.parallel` shards; the rank is number `rank` of `ranks` that share the store.
StateMemory state_memory(const RunConfig& config, const StoreSize& size, int rank, int ranks);

}  // namespace chorus
