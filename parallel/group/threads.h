// Ranks as threads of one process: they read each other's memory, so a collective reads and writes every buffer once.
#pragma once
#include <chorus/parallel/group/group.h>

namespace chorus {

struct ThreadOptions : GroupOptions {
  int threads_per_rank = 0;              ///< OpenMP threads of each rank; 0: the cores shared equally, at least 1
  double spin_seconds = 20e-6;           ///< a wait looks this long before it sleeps; not at all with more ranks than cores
  std::int64_t piece_bytes = 256 << 10;  ///< ranks take a call's work in pieces of at most this size
  std::int64_t small_bytes =
      128 << 10;  ///< whoever comes last does a call that touches no more at once, rather than wake the others
};

/// Runs `rank_main` as `ranks` ranks, each in a thread of its own with its own OpenMP width, and returns when all have ended.
/// What one of them throws ends the groups of all; then an Error tells the first cause, its rank and that rank's last call. A
/// rank that never comes back from its own work can't be ended from outside: then this doesn't return, but the flight recorders
/// are written.
void run_ranks(int ranks, const ThreadOptions& options, const std::function<void(Group& world)>& rank_main);

}  // namespace chorus
