#include <chorus/parallel/group/mpi.h>
#include <chorus/parallel/group/nccl.h>
#include <chorus/parallel/group/reduce.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/parallel/group/threads.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <atomic>
#include <limits>
#include <thread>

#include "groups/exercise.h"
#include "groups/values.h"

namespace chorus {
namespace {

using testing::Guarded;
using testing::value_of;

class Groups : public ::testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Threads, Groups, ::testing::Values(1, 2, 3, 4, 7));

// Pieces of 1,000 bytes, which all ranks take part in: the largest size has some also when it is cut into seven parts of bf16.
ThreadOptions small_pieces() {
  ThreadOptions options;
  options.piece_bytes = 1000;
  options.small_bytes = 0;
  return options;
}

TEST_P(Groups, CollectivesEqualTheObvious) {
  const std::int64_t sizes[] = {0, 1, 7, 333, 7001};
  run_ranks(ranks(), small_pieces(), [&](Group& world) { testing::exercise_collectives(world, sizes); });
}
TEST_P(Groups, PiecesOfOneElement) {
  ThreadOptions options;
  options.piece_bytes = 1;
  options.small_bytes = 0;
  const std::int64_t sizes[] = {3, 401};
  run_ranks(ranks(), options, [&](Group& world) { testing::exercise_collectives(world, sizes); });
}
TEST_P(Groups, MessagesArriveInOrder) {
  const std::int64_t sizes[] = {0, 1, 333, 5003};
  run_ranks(ranks(), small_pieces(), [&](Group& world) { testing::exercise_messages(world, sizes); });
}
TEST_P(Groups, CallsInFlightGiveTheBitsOfBlockingOnes) {
  run_ranks(ranks(), {}, [](Group& world) {
    testing::exercise_in_flight(world, 5);
    testing::exercise_in_flight(world, 9001);
  });
}
TEST_P(Groups, SplitAndSplitAgain) { run_ranks(ranks(), {}, testing::exercise_split); }
TEST_P(Groups, WhoComesLastDoesSmallCalls) {
  const std::int64_t sizes[] = {1, 333};
  run_ranks(ranks(), {}, [&](Group& world) {
    testing::exercise_collectives(world, sizes);
    testing::exercise_messages(world, sizes);
  });
}
TEST_P(Groups, BadArgumentsAreNamed) { run_ranks(ranks(), {}, testing::exercise_bad_arguments); }

TEST_P(Groups, DelayedRanksGiveTheSameBits) {
  ThreadOptions options = small_pieces();
  std::atomic<std::uint64_t> calls = 0;
  options.observe = [&](const Call& call, int rank) {
    const auto bits = testing::bits_of(rank, static_cast<std::int64_t>(call.sequence), ++calls);
    if (bits % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(bits % 700));
  };
  run_ranks(ranks(), options, [&](Group& world) {
    testing::exercise_in_flight(world, 3001);
    const std::int64_t sizes[] = {257};
    testing::exercise_messages(world, sizes);
    testing::exercise_split(world);
  });
}

TEST(Solo, TakesTheSamePath) {
  SoloGroup solo;
  const std::int64_t sizes[] = {0, 1, 333};
  testing::exercise_collectives(solo, sizes);
  testing::exercise_in_flight(solo, 333);
  testing::exercise_split(solo);
  testing::exercise_bad_arguments(solo);
}

TEST(Groups, MegabytesAreSharedOut) {
  run_ranks(3, {}, [](Group& world) {
    constexpr std::int64_t count = 700'001;
    std::vector<float> x(count);
    for (std::int64_t i = 0; i < count; ++i)
      x[static_cast<std::size_t>(i)] = static_cast<float>((i % 1000) * (world.rank() + 1));
    world.all_reduce(std::span<float>(x));
    for (std::int64_t i = 0; i < count; ++i)
      if (x[static_cast<std::size_t>(i)] != static_cast<float>((i % 1000) * 6))
        return (void)(ADD_FAILURE() << "element " << i << " is " << x[static_cast<std::size_t>(i)]);
  });
}

TEST(Groups, EveryRankHasItsShareOfTheCores) {
  ThreadOptions options;
  options.threads_per_rank = 3;
  run_ranks(2, options, [](Group&) { EXPECT_EQ(omp_get_max_threads(), 3); });
  run_ranks(64, {}, [](Group&) { EXPECT_EQ(omp_get_max_threads(), 1); });
}

TEST(Groups, SixtyFourRanks) {
  run_ranks(64, {}, [](Group& world) {
    for (int i = 0; i < 5; ++i) {
      std::int64_t x = world.rank();
      world.all_reduce(std::span<std::int64_t>(&x, 1));
      EXPECT_EQ(x, 64 * 63 / 2);
    }
    world.barrier();
  });
}

TEST(Groups, ADroppedCallIsWaitedFor) {
  run_ranks(2, {}, [](Group& world) {
    std::vector<double> x(100'000, 1.0), y(x);
    { const auto dropped = world.start_all_reduce(std::span<double>(x)); }
    EXPECT_EQ(x.back(), 2.0);
    auto pending = world.start_all_reduce(std::span<double>(x));
    pending = world.start_all_reduce(std::span<double>(y));  // which waits for the first
    EXPECT_EQ(x.back(), 4.0);
    pending.wait();
    pending.wait();
    EXPECT_FALSE(pending);
    EXPECT_EQ(y.back(), 2.0);
  });
}

TEST(Backends, ThatAreNotBuiltSayHowToGetThem) {
  using ::testing::HasSubstr;
  using ::testing::ThrowsMessage;
  SoloGroup host;
  if (!nccl_built()) {
    EXPECT_THAT([&] { nccl_group(host, Cuda{}, {}); }, ThrowsMessage<Error>(HasSubstr("-DCHORUS_NCCL=ON")));
  }
  if (!mpi_built()) {
    EXPECT_THAT([] { mpi_group({}); }, ThrowsMessage<Error>(HasSubstr("-DCHORUS_MPI=ON")));
    EXPECT_THAT([] { run_mpi({}, [](Group&) {}); }, ThrowsMessage<Error>(HasSubstr("libopenmpi-dev")));
  }
}

TEST(Reduce, NanWinsMaximaAndMinima) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float a[] = {1, nan, 3, -1}, b[] = {2, 1, nan, -2};
  for (const Reduce how : {Reduce::max, Reduce::min}) {
    float out[4];
    const void* inputs[] = {a, b};
    void* outputs[] = {out};
    reduce(DType::f32, how, inputs, outputs, 4);
    EXPECT_EQ(out[0], how == Reduce::max ? 2 : 1);
    EXPECT_TRUE(std::isnan(out[1]) && std::isnan(out[2]));
    EXPECT_EQ(out[3], how == Reduce::max ? -1 : -2);
  }
}

TEST(Reduce, Bf16IsAddedInF32AndRoundedOnce) {
  // 256 + 1 + 1: rounded after each addition it would stay 256.
  const bf16 a(256.f), b(1.f), c(1.f);
  bf16 out;
  const void* inputs[] = {&a, &b, &c};
  void* outputs[] = {&out};
  reduce(DType::bf16, Reduce::sum, inputs, outputs, 1);
  EXPECT_EQ(static_cast<float>(out), 258.f);
}

}  // namespace
}  // namespace chorus
