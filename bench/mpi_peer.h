// What groups of processes are compared with.
#pragma once
#include <cstdint>

namespace chorus::bench {

/// MPI_Allreduce of f32, in place, over MPI_COMM_WORLD.
void mpi_all_reduce(float* x, std::int64_t count);

}  // namespace chorus::bench
