// Ranks as processes, over any MPI-3. Builds without MPI have the same functions, which say so.
#pragma once
#include <chorus/parallel/group/group.h>

#include <optional>

namespace chorus {

struct MpiOptions : GroupOptions {
  /// Address of the caller's MPI_Comm, of which a duplicate is used; null: MPI_COMM_WORLD.
  const void* communicator = nullptr;
  std::int64_t chunk_bytes = 2 << 20;  ///< no message is larger, at most 2^31 - 1
  std::int64_t small_bytes =
      8 << 10;                   ///< reductions up to this size are gathered and added by every rank: one exchange, not two
  double spin_seconds = 100e-6;  ///< a wait polls this long without news before it sleeps between polls
};

bool mpi_built();
/// "Open MPI v4.1.4, ..." or what says that there is none.
std::string mpi_library();
/// How many processes a launcher (mpirun, mpiexec, a step of srun) says that it has started; nothing without one. Works in
/// every build, so that copies of a program that can't reach each other are noticed.
std::optional<int> launched_processes();
/// How many of them share this machine's cores, where the launcher says so.
std::optional<int> launched_on_this_machine();

/// The world of this process: all ranks of the communicator call it. MPI is initialised, and finalized with the last group,
/// only if nobody has done so before; MPI_THREAD_FUNNELED is enough. The error handler of the caller's communicator stays as it
/// is. After a failure nothing is finalized or freed, because that could wait for ranks that are gone; memory of calls that did
/// not end must stay allocated as long as the process lives.
std::unique_ptr<Group> mpi_group(const MpiOptions& options);

/// Runs `rank_main` on the world of this process and returns when it has returned everywhere. What it throws ends the groups of
/// all ranks; then every rank throws an Error with the first cause that it knows. A program should then exit with an error,
/// which makes its launcher end the ranks that can't answer.
void run_mpi(const MpiOptions& options, const std::function<void(Group& world)>& rank_main);

}  // namespace chorus
