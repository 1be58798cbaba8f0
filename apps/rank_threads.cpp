#include <chorus/apps/rank_threads.h>
#include <chorus/core/cpu.h>
#include <chorus/parallel/group/mpi.h>

#include <algorithm>

namespace chorus {

int threads_of_a_rank(const Group& world) {
  const int here = launched_processes() ? launched_on_this_machine().value_or(world.size()) : world.size();
  return std::max(1, compute_threads() / std::min(here, world.size()));
}

}  // namespace chorus
