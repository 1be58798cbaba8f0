#include <chorus/parallel/group/mpi.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "groups/exercise.h"
#include "groups/values.h"
#include "mpi/main.h"

namespace chorus {
namespace {

MpiOptions on_host() {
  MpiOptions options;
  options.communicator = &testing::host;
  options.time_limit = 60;
  return options;
}
/// Messages of at most 1,000 f32: sizes beyond are cut as those beyond 2^31 bytes would be.
MpiOptions small_chunks() {
  MpiOptions options = on_host();
  options.chunk_bytes = 4000;
  return options;
}

TEST(Mpi, CollectivesEqualTheObvious) {
  const auto world = mpi_group(on_host());
  const std::int64_t sizes[] = {0, 1, 7, 333, 20011};
  testing::exercise_collectives(*world, sizes);
}
TEST(Mpi, ChunksOfAThousand) {
  const auto world = mpi_group(small_chunks());
  const std::int64_t sizes[] = {1000, 1001, 9001};
  testing::exercise_collectives(*world, sizes);
  testing::exercise_messages(*world, sizes);
}
TEST(Mpi, ReductionsInOneStepGiveTheSameBits) {
  MpiOptions options = small_chunks();
  options.small_bytes = 1 << 20;
  const auto world = mpi_group(options);
  const std::int64_t sizes[] = {1, 333, 5003};
  testing::exercise_collectives(*world, sizes);
}
TEST(Mpi, MessagesArriveInOrder) {
  const auto world = mpi_group(on_host());
  const std::int64_t sizes[] = {0, 1, 333, 20011};
  testing::exercise_messages(*world, sizes);
}
TEST(Mpi, CallsInFlightGiveTheBitsOfBlockingOnes) {
  const auto world = mpi_group(on_host());
  testing::exercise_in_flight(*world, 5);
  testing::exercise_in_flight(*world, 9001);
  const auto small = mpi_group(small_chunks());
  testing::exercise_in_flight(*small, 3001);
  const auto three = world->split(world->rank() < 3 ? 0 : -1, 0, "three");
  if (three) testing::exercise_in_flight(*three, 9001);
}
TEST(Mpi, SplitAndSplitAgain) {
  const auto world = mpi_group(on_host());
  testing::exercise_split(*world);
}
TEST(Mpi, BadArgumentsAreNamed) {
  const auto world = mpi_group(on_host());
  testing::exercise_bad_arguments(*world);
}
TEST(Mpi, DelayedRanksGiveTheSameBits) {
  MpiOptions options = small_chunks();
  std::uint64_t calls = 0;
  options.observe = [&](const Call& call, int rank) {
    const auto bits = testing::bits_of(rank, static_cast<std::int64_t>(call.sequence), ++calls);
    if (bits % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(bits % 700));
  };
  const auto world = mpi_group(options);
  testing::exercise_in_flight(*world, 3001);
  const std::int64_t sizes[] = {257};
  testing::exercise_messages(*world, sizes);
  testing::exercise_split(*world);
}

TEST(Mpi, SeveralWorldsAndTheHostsOwnTraffic) {
  int rank = 0, size = 0;
  MPI_Comm_rank(testing::host, &rank);
  MPI_Comm_size(testing::host, &size);
  MPI_Errhandler before = MPI_ERRHANDLER_NULL, after = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(testing::host, &before);
  // A message of the host that is on its way all the time, with a tag of its own that a group may use too.
  int out = rank, in = -1;
  MPI_Request requests[2];
  MPI_Irecv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, testing::host, &requests[0]);
  {
    const auto one = mpi_group(on_host()), two = mpi_group(on_host());
    for (int i = 0; i < 3; ++i) {
      std::int64_t a = rank, b = 10 * rank;
      auto pending = one->start_all_reduce(std::span<std::int64_t>(&a, 1));
      two->all_reduce(std::span<std::int64_t>(&b, 1));
      pending.wait();
      EXPECT_EQ(a, size * (size - 1) / 2);
      EXPECT_EQ(b, 10 * a);
    }
  }
  MPI_Isend(&out, 1, MPI_INT, (rank + 1) % size, 8, testing::host, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  EXPECT_EQ(in, (rank + size - 1) % size);
  MPI_Comm_get_errhandler(testing::host, &after);
  EXPECT_EQ(before, after);
  MPI_Errhandler_free(&before);
  MPI_Errhandler_free(&after);
}

TEST(Mpi, ALibraryIsNamed) {
  EXPECT_TRUE(mpi_built());
  EXPECT_THAT(mpi_library(), ::testing::AnyOf(::testing::HasSubstr("Open MPI"), ::testing::HasSubstr("MPICH")));
  int size = 0;
  MPI_Comm_size(testing::host, &size);
  EXPECT_EQ(launched_processes(), size);
  EXPECT_EQ(launched_on_this_machine(), size);
}

}  // namespace
}  // namespace chorus
