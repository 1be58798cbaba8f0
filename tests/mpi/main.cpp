// The tests of groups on processes: `mpirun -n 4 test_mpi` runs each of them on every rank alike. The program is its own host:
// it initialises MPI, as a simulation that embeds the library would, and gives every test a communicator.
#include "mpi/main.h"

#include <gtest/gtest.h>

namespace chorus::testing {

MPI_Comm host = MPI_COMM_NULL;

int sum_over_ranks(int mine) {
  int all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

}  // namespace chorus::testing

int main(int argc, char** argv) {
  int rank = 0, provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_dup(MPI_COMM_WORLD, &chorus::testing::host);
  ::testing::InitGoogleTest(&argc, argv);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank > 0) {  // failures of all ranks, progress of the first
    struct Failures : ::testing::EmptyTestEventListener {
      void OnTestPartResult(const ::testing::TestPartResult& result) override {
        if (result.failed())
          std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank, result.file_name(), result.line_number(), result.message());
      }
      int rank;
    };
    auto* failures = new Failures;  // GoogleTest owns it
    failures->rank = rank;
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(failures);
  }
  const int failed = RUN_ALL_TESTS();
  const int all = chorus::testing::sum_over_ranks(failed);
  MPI_Comm_free(&chorus::testing::host);
  MPI_Finalize();
  return all == 0 ? 0 : 1;
}
