#include <chorus/parallel/group/mpi.h>

#include <cstdlib>

namespace chorus {
namespace {
std::optional<int> number(const char* name) {
  const char* text = std::getenv(name);
  const int n = text ? std::atoi(text) : 0;
  return n > 0 ? std::optional(n) : std::nullopt;
}
}  // namespace

std::optional<int> launched_on_this_machine() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"})
    if (const auto n = number(name)) return n;
  return std::nullopt;
}

std::optional<int> launched_processes() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const auto n = number(name)) return n;
  // The shell of a batch job has SLURM_NTASKS too; a process that srun started has a number of its own.
  return std::getenv("SLURM_STEP_ID") && std::getenv("SLURM_PROCID") ? number("SLURM_NTASKS") : std::nullopt;
}

}  // namespace chorus
