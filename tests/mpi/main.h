#pragma once
#include <mpi.h>

namespace chorus::testing {

extern MPI_Comm host;  ///< a communicator of the program that embeds the library
int sum_over_ranks(int mine);

}  // namespace chorus::testing
