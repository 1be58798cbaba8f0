// Two processes that were started together find each other; the exit status says whether.
#include <mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Finalize();
  return size == 2 ? 0 : 1;
}
