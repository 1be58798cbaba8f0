// What ends a group of processes ends every rank, in time, with a message that says who, where and why; the host lives on.
#include <chorus/core/posix_file.h>
#include <chorus/parallel/group/mpi.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "mpi/main.h"

namespace chorus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct MpiFailure : ::testing::Test {
  int rank = 0, size = 0;
  double seconds = 0;
  MpiOptions options;
  MpiFailure() {
    MPI_Comm_rank(testing::host, &rank);
    MPI_Comm_size(testing::host, &size);
    options.communicator = &testing::host;
    options.time_limit = 60;
  }
  ~MpiFailure() override { MPI_Barrier(testing::host); }

  /// What this rank's Error says; "" if it throws none.
  std::string run(const std::function<void(Group&)>& body) {
    const auto begin = std::chrono::steady_clock::now();
    std::string text;
    try {
      run_mpi(options, body);
    } catch (const Error& e) {
      text = e.what();
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return text;
  }
};

void sum_one(Group& group, std::int64_t count = 1) {
  std::vector<float> x(static_cast<std::size_t>(count), 1.f);
  group.all_reduce(std::span<float>(x));
}

TEST_F(MpiFailure, AnExceptionOfOneRankEndsAll) {
  const auto text = run([&](Group& world) {
    sum_one(world);
    world.barrier();
    require(rank != 1, "reader", "no such file");
    sum_one(world, 50'000);
  });
  EXPECT_LT(seconds, 10);
  EXPECT_THAT(
      text, AllOf(HasSubstr("rank 1: reader: no such file"), HasSubstr("(its last call: barrier 2 of group 'world' (done))")));
  if (rank != 1) {
    EXPECT_THAT(text, HasSubstr("rank " + std::to_string(rank) +
                                " was stopped in all_reduce(sum) of 50000 f32, call 3 of group 'world'"));
  }
}

TEST_F(MpiFailure, AStalledRankEndsTheOthersInTime) {
  options.time_limit = 0.6;
  const auto text = run([&](Group& world) {
    world.barrier();
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2000));
    sum_one(world, 7);
  });
  if (rank != 2) {
    EXPECT_LT(seconds, 1.9);
  }
  EXPECT_THAT(text, AllOf(HasSubstr("waited for 0.6 s in all_reduce(sum) of 7 f32, call 2 of group 'world' for "),
                          HasSubstr("rank 2")));
}

TEST_F(MpiFailure, ARankThatReturnsEarlyDiffers) {
  const auto text = run([&](Group& world) {
    world.barrier();
    if (rank != 1) sum_one(world);
  });
  EXPECT_LT(seconds, 10);
  EXPECT_THAT(text,
              AllOf(HasSubstr("group 'world', call 2: rank "), HasSubstr("barrier"), HasSubstr("all_reduce(sum) of 1 f32")));
}

struct Divergence {
  const char* name;
  std::function<void(Group&)> usual, other;
  std::string says_usual, says_other;
};
std::vector<float> x(60'000);
Elements some(std::int64_t count, DType dtype = DType::f32) { return {x.data(), count, dtype}; }
Elements more(std::int64_t count) { return {x.data() + 30'000, count, DType::f32}; }
std::vector<std::int64_t> fours(Group& g) { return std::vector<std::int64_t>(static_cast<std::size_t>(g.size()), 4); }
std::vector<std::int64_t> uneven(Group& g) {
  auto counts = fours(g);
  ++counts.front(), --counts.back();
  return counts;
}

TEST_F(MpiFailure, DivergingCallsNameBothSides) {
  const std::vector<Divergence> kinds{
      {"operation", [](Group& g) { g.all_reduce(some(4)); }, [](Group& g) { g.broadcast(some(4), 0); },
       "all_reduce(sum) of 4 f32", "broadcast of 4 f32 from rank 0"},
      {"type", [](Group& g) { g.all_reduce(some(4)); }, [](Group& g) { g.all_reduce(some(4, DType::i32)); }, "of 4 f32",
       "of 4 i32"},
      {"count", [](Group& g) { g.all_reduce(some(4)); }, [](Group& g) { g.all_reduce(some(20'000)); }, "of 4 f32",
       "of 20000 f32"},
      {"long", [](Group& g) { g.all_reduce(some(20'001)); }, [](Group& g) { g.all_reduce(some(20'000)); }, "of 20001 f32",
       "of 20000 f32"},
      {"reduction", [](Group& g) { g.all_reduce(some(4)); }, [](Group& g) { g.all_reduce(some(4), Reduce::max); },
       "all_reduce(sum) of 4 f32", "all_reduce(max) of 4 f32"},
      {"root", [](Group& g) { g.broadcast(some(4), 0); }, [](Group& g) { g.broadcast(some(4), 2); }, "from rank 0",
       "from rank 2"},
      {"counts", [](Group& g) { g.all_gather(more(4), some(4 * g.size()), fours(g)); },
       [](Group& g) { g.all_gather(more(4), some(4 * g.size()), uneven(g)); }, "all_gather of 4,4,4,4 f32",
       "all_gather of 5,4,4,3 f32"},
      {"parts", [](Group& g) { g.reduce_scatter(some(4 * g.size()), more(4), fours(g)); },
       [](Group& g) { g.reduce_scatter(some(4 * g.size()), more(4), uneven(g)); }, "reduce_scatter of 4,4,4,4 f32",
       "reduce_scatter of 5,4,4,3 f32"},
      {"exchange", [](Group& g) { g.all_to_all(some(4 * g.size()), fours(g), more(4 * g.size()), fours(g)); },
       [](Group& g) {
         auto counts = fours(g);
         counts[0] = 20'000;
         g.all_to_all(some(20'000 + 4 * (g.size() - 1)), counts, more(4 * g.size()), fours(g));
       },
       "rank 1 makes all_to_all of f32, which sends 20000 elements",
       "rank 0 makes all_to_all of f32, which expects 4 elements"},
      {"order",
       [](Group& g) {
         g.all_reduce(some(4));
         g.barrier();
       },
       [](Group& g) {
         g.barrier();
         g.all_reduce(some(4));
       },
       "all_reduce(sum) of 4 f32", "barrier"},
      {"split", [](Group& g) { g.split(0, 0, "a"); }, [](Group& g) { g.barrier(); }, "split", "barrier"}};
  for (const auto& kind : kinds) {
    const auto text = run([&](Group& world) {
      world.barrier();
      (rank == 1 ? kind.other : kind.usual)(world);
    });
    EXPECT_LT(seconds, 10) << kind.name;
    EXPECT_THAT(text, AllOf(HasSubstr("group 'world', call 2: rank "), HasSubstr(kind.says_usual), HasSubstr(kind.says_other)))
        << kind.name;
    MPI_Barrier(testing::host);
  }
}

TEST_F(MpiFailure, MessagesOfAnotherSize) {
  const auto text = run([&](Group& world) {
    if (rank == 0) world.send(some(4), 2);
    if (rank == 2) world.receive(some(5), 0);
    world.barrier();
  });
  EXPECT_THAT(text,
              AllOf(HasSubstr("rank 0 makes send of 4 f32 to rank 2"), HasSubstr("rank 2 makes receive of 5 f32 from rank 0")));
}

TEST_F(MpiFailure, EndsAllGroupsOfTheWorld) {
  const auto text = run([&](Group& world) {
    const auto tp = world.split(rank / 2, 0, "tp");
    const auto dp = world.split(rank % 2, 0, "dp");
    sum_one(*tp);
    if (rank == 3) throw std::runtime_error("out of memory");
    if (rank == 2) sum_one(*tp);
    if (rank == 1) sum_one(*dp);
    world.barrier();
  });
  EXPECT_LT(seconds, 10);
  EXPECT_THAT(text, AllOf(HasSubstr("rank 3: out of memory"), HasSubstr("last call: all_reduce 1 of group 'tp' (done)")));
}

TEST_F(MpiFailure, CallsInFlightAreLeft) {
  const auto text = run([&](Group& world) {
    std::vector<std::vector<float>> buffers(6, std::vector<float>(300'000, 1.f));
    std::vector<Pending> pending;
    for (auto& part : buffers) pending.push_back(world.start_all_reduce(std::span<float>(part)));
    if (rank == 0) throw std::runtime_error("gone");
    for (auto& p : pending) p.wait();
  });
  EXPECT_LT(seconds, 20);
  EXPECT_THAT(text, AnyOf(HasSubstr("rank 0: gone"), HasSubstr("rank 0 left all_reduce(sum) of 300000 f32")));
}

TEST_F(MpiFailure, TheLastCallsAreWritten) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("chorus_mpi_recorder." + std::to_string(testing::sum_over_ranks(rank == 0 ? getpid() : 0)));
  options.record_folder = folder;
  run([&](Group& world) {
    for (int i = 0; i < 6; ++i) sum_one(world, 10 + i);
    if (rank == 1) throw std::runtime_error("disk full");
    world.barrier();
  });
  MPI_Barrier(testing::host);
  for (int r = 0; r < size; ++r) {
    const std::string text = read_file(folder / ("rank-" + std::to_string(r) + ".json"));
    EXPECT_THAT(text, AllOf(HasSubstr("{\"rank\": " + std::to_string(r) + ", \"calls\": ["),
                            HasSubstr("\"count\": 15, \"peer\": -1, ")));
  }
  MPI_Barrier(testing::host);
  if (rank == 0) std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace chorus
