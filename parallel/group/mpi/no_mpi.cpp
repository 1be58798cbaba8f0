// Linked where there is no MPI.
#include <chorus/parallel/group/mpi.h>

namespace chorus {

bool mpi_built() { return false; }
std::string mpi_library() { return "none: built without MPI"; }

std::unique_ptr<Group> mpi_group(const MpiOptions&) {
  fail("mpi_group", "this build has no MPI; configure it with -DCHORUS_MPI=ON and an MPI-3 library (Debian: libopenmpi-dev)");
}
void run_mpi(const MpiOptions& options, const std::function<void(Group& world)>&) { mpi_group(options); }

}  // namespace chorus
