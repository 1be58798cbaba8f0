// What ends a group ends every rank of its world, in time, with a message that says who, where and why.
#include <chorus/core/posix_file.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/parallel/group/threads.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <thread>

namespace chorus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// What each rank and `run_ranks` itself said, and how long it took.
struct Outcome {
  std::vector<std::string> ranks;  // empty: did not throw
  std::string whole;
  double seconds = 0;
};

Outcome run(int ranks, ThreadOptions options, const std::function<void(Group&)>& body) {
  Outcome outcome;
  outcome.ranks.resize(static_cast<std::size_t>(ranks));
  const auto begin = Clock::now();
  try {
    run_ranks(ranks, options, [&](Group& world) {
      try {
        body(world);
      } catch (const std::exception& e) {
        outcome.ranks[static_cast<std::size_t>(world.rank())] = e.what();
        throw;
      }
    });
  } catch (const Error& e) {
    outcome.whole = e.what();
  }
  outcome.seconds = seconds_since(begin);
  return outcome;
}

ThreadOptions limit(double seconds) {
  ThreadOptions options;
  options.time_limit = seconds;
  return options;
}

void sum_one(Group& group, std::int64_t count = 1) {
  std::vector<float> x(static_cast<std::size_t>(count), 1.f);
  group.all_reduce(std::span<float>(x));
}

TEST(Failure, AnExceptionOfOneRankEndsAll) {
  const auto outcome = run(3, limit(60), [](Group& world) {
    sum_one(world);
    world.barrier();
    require(world.rank() != 1, "reader", "no such file");
    sum_one(world, 5);
  });
  EXPECT_LT(outcome.seconds, 10);
  EXPECT_THAT(outcome.whole, AllOf(HasSubstr("rank 1: reader: no such file"),
                                   HasSubstr("(its last call: barrier 2 of group 'world' (done))")));
  EXPECT_THAT(outcome.ranks[1], HasSubstr("no such file"));
  for (const std::size_t r : {0u, 2u})
    EXPECT_THAT(outcome.ranks[r], AllOf(HasSubstr("rank " + std::to_string(r) +
                                                  " was stopped in all_reduce(sum) of 5 f32, call 3 of group 'world'"),
                                        HasSubstr("rank 1: reader: no such file")));
}

TEST(Failure, WhateverIsThrownIsTold) {
  EXPECT_THAT(run(2, limit(60),
                  [](Group& world) {
                    if (world.rank() == 0) throw 5;
                    world.barrier();
                  })
                  .whole,
              HasSubstr("rank 0: an exception that is no std::exception (its last call: none)"));
}

TEST(Failure, AStalledRankEndsTheOthersInTime) {
  double waited = 0;
  std::mutex mutex;
  const auto outcome = run(3, limit(0.5), [&](Group& world) {
    world.barrier();
    const auto begin = Clock::now();
    if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    try {
      sum_one(world, 7);
    } catch (...) {
      if (world.rank() != 2) {
        const std::lock_guard lock(mutex);
        waited = std::max(waited, seconds_since(begin));
      }
      throw;
    }
  });
  EXPECT_GE(waited, 0.5);
  EXPECT_LT(waited, 1.45);
  EXPECT_THAT(outcome.whole,
              ::testing::MatchesRegex("rank [01] waited for 0.5 s in all_reduce\\(sum\\) of 7 f32, call 2 of group "
                                      "'world' for rank 2 \\(its last call: barrier 1 of group 'world' \\(done\\)\\)"));
  for (const auto& text : outcome.ranks) EXPECT_THAT(text, HasSubstr("was stopped in all_reduce(sum) of 7 f32, call 2"));
}

TEST(Failure, ARankThatHasReturnedIsNotWaitedFor) {
  const auto outcome = run(3, limit(60), [](Group& world) {
    world.barrier();
    if (world.rank() != 1) sum_one(world);
  });
  EXPECT_LT(outcome.seconds, 10);
  EXPECT_THAT(outcome.whole, HasSubstr("for rank 1, which has ended (its last call: barrier 1 of group 'world' (done))"));
  EXPECT_EQ(outcome.ranks[1], "");
}

struct Divergence {
  const char* name;
  std::function<void(Group&)> usual, other;
  std::string says_usual, says_other;
};
void PrintTo(const Divergence& d, std::ostream* out) { *out << d.name; }

class Diverging : public ::testing::TestWithParam<Divergence> {};

std::vector<float>& memory() {
  static thread_local std::vector<float> x(100);
  return x;
}
Elements some(std::int64_t count, DType dtype = DType::f32) { return {memory().data(), count, dtype}; }
Elements more(std::int64_t count) { return {memory().data() + 50, count, DType::f32}; }
const std::vector<std::int64_t> twos{2, 2, 2}, uneven{1, 2, 3};

INSTANTIATE_TEST_SUITE_P(
    Kinds, Diverging,
    ::testing::Values(
        Divergence{"operation", [](Group& g) { g.all_reduce(some(4)); }, [](Group& g) { g.broadcast(some(4), 0); },
                   "all_reduce(sum) of 4 f32", "broadcast of 4 f32 from rank 0"},
        Divergence{"type", [](Group& g) { g.all_reduce(some(4)); }, [](Group& g) { g.all_reduce(some(4, DType::i32)); },
                   "all_reduce(sum) of 4 f32", "all_reduce(sum) of 4 i32"},
        Divergence{"count", [](Group& g) { g.all_reduce(some(4)); }, [](Group& g) { g.all_reduce(some(5)); },
                   "all_reduce(sum) of 4 f32", "all_reduce(sum) of 5 f32"},
        Divergence{"reduction", [](Group& g) { g.all_reduce(some(4)); }, [](Group& g) { g.all_reduce(some(4), Reduce::max); },
                   "all_reduce(sum) of 4 f32", "all_reduce(max) of 4 f32"},
        Divergence{"root", [](Group& g) { g.broadcast(some(4), 0); }, [](Group& g) { g.broadcast(some(4), 2); },
                   "broadcast of 4 f32 from rank 0", "broadcast of 4 f32 from rank 2"},
        Divergence{"counts", [](Group& g) { g.all_gather(more(2), some(6), twos); },
                   [](Group& g) { g.all_gather(more(2), some(6), uneven); }, "all_gather of 2,2,2 f32",
                   "all_gather of 1,2,3 f32"},
        Divergence{"parts", [](Group& g) { g.reduce_scatter(some(6), more(2), twos); },
                   [](Group& g) { g.reduce_scatter(some(6), more(2), uneven); }, "reduce_scatter of 2,2,2 f32",
                   "reduce_scatter of 1,2,3 f32"},
        Divergence{"exchange", [](Group& g) { g.all_to_all(some(6), twos, more(6), twos); },
                   [](Group& g) {
                     g.all_to_all(some(7), std::vector<std::int64_t>{3, 2, 2}, more(6), twos);
                   },
                   "rank 1 sends 3 elements, rank 0 expects 2", "all_to_all of f32"},
        Divergence{"order",
                   [](Group& g) {
                     g.all_reduce(some(4));
                     g.barrier();
                   },
                   [](Group& g) {
                     g.barrier();
                     g.all_reduce(some(4));
                   },
                   "all_reduce(sum) of 4 f32", "barrier"},
        Divergence{"split", [](Group& g) { g.split(0, 0, "a"); }, [](Group& g) { g.barrier(); }, "split", "barrier"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(Diverging, EndsAllNamingBothSides) {
  const auto& d = GetParam();
  const auto outcome = run(3, limit(60), [&](Group& world) {
    world.barrier();
    (world.rank() == 1 ? d.other : d.usual)(world);
  });
  EXPECT_LT(outcome.seconds, 10);
  EXPECT_THAT(outcome.whole, AllOf(HasSubstr("group 'world', call 2: rank "), HasSubstr("rank 1 makes "),
                                   HasSubstr(d.says_usual), HasSubstr(d.says_other)));
  for (const auto& text : outcome.ranks) EXPECT_THAT(text, HasSubstr(outcome.whole));
}

TEST(Failure, NamesThatDifferInOneColor) {
  const auto outcome = run(2, limit(60), [](Group& world) { world.split(0, 0, world.rank() == 0 ? "tp" : "dp"); });
  EXPECT_THAT(outcome.whole, HasSubstr("another name than"));
}

TEST(Failure, MessagesOfAnotherSize) {
  const auto outcome = run(3, limit(60), [](Group& world) {
    if (world.rank() == 0) world.send(some(4), 2);
    if (world.rank() == 2) world.receive(some(5), 0);
    world.barrier();
  });
  EXPECT_THAT(outcome.whole, AllOf(HasSubstr("send of 4 f32 to rank 2"), HasSubstr("receive of 5 f32 from rank 0"),
                                   HasSubstr("group 'world', call 1")));
  for (const auto& text : outcome.ranks) EXPECT_NE(text, "");
}

TEST(Failure, TwoSendsThatMeetAreNotWaitedForForEver) {
  const auto outcome = run(2, limit(0.2), [](Group& world) { world.send(some(4), 1 - world.rank()); });
  EXPECT_THAT(outcome.whole, HasSubstr("waited for 0.2 s in send of 4 f32 to rank"));
}

TEST(Failure, EndsAllGroupsOfTheWorld) {
  const auto outcome = run(4, limit(60), [](Group& world) {
    const auto tp = world.split(world.rank() / 2, 0, "tp");
    const auto dp = world.split(world.rank() % 2, 0, "dp");
    sum_one(*tp);
    world.barrier();  // so that all have got this far
    if (world.rank() == 3) throw std::runtime_error("out of memory");
    if (world.rank() == 2) sum_one(*tp);
    if (world.rank() == 1) sum_one(*dp);
    if (world.rank() == 0) world.barrier();
  });
  EXPECT_LT(outcome.seconds, 10);
  EXPECT_THAT(outcome.whole, HasSubstr("rank 3: out of memory (its last call: barrier 3 of group 'world' (done))"));
  const std::string where[] = {"barrier, call 4 of group 'world'", "call 1 of group 'dp'", "call 2 of group 'tp'"};
  for (std::size_t r = 0; r < 3; ++r)
    EXPECT_THAT(outcome.ranks[r], AllOf(HasSubstr(where[r]), HasSubstr("rank 3: out of memory")));
}

TEST(Failure, DivergenceInASplitGroupNamesRanksOfTheWorld) {
  const auto outcome = run(4, limit(60), [](Group& world) {
    const auto tp = world.split(world.rank() / 2, 0, "tp");
    sum_one(*tp, world.rank() == 3 ? 2 : 1);
    world.barrier();
  });
  EXPECT_THAT(outcome.whole,
              AllOf(HasSubstr("group 'tp', call 1"), HasSubstr("rank 0 (2 of the world) makes all_reduce(sum) of 1 f32"),
                    HasSubstr("rank 1 (3 of the world) makes all_reduce(sum) of 2 f32")));
}

TEST(Failure, AnEndedGroupStaysEnded) {
  const auto outcome = run(2, limit(60), [](Group& world) {
    if (world.rank() == 0) world.end_all("asked to");
    for (int i = 0; i < 3; ++i) EXPECT_THROW(world.barrier(), Error);
    const auto pending = [&] { return world.start_all_reduce(some(1)); };
    EXPECT_THROW(pending(), Error);
    world.barrier();
  });
  EXPECT_THAT(outcome.whole, HasSubstr("rank 0 ended the world: asked to"));
  SoloGroup solo;
  solo.end_all("asked to");
  EXPECT_THAT([&] { solo.barrier(); }, ::testing::ThrowsMessage<Error>(HasSubstr("asked to")));
}

TEST(Failure, CallsInFlightAreLeftBeforeTheirMemoryGoes) {
  // The first rank leaves with calls in flight that the others are at work on: under the address sanitizer, a late read is an
  // error.
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto outcome = run(3, limit(60), [&](Group& world) {
      std::vector<std::vector<float>> x(20, std::vector<float>(200'000, 1.f));
      std::vector<Pending> pending;
      for (auto& part : x) pending.push_back(world.start_all_reduce(std::span<float>(part)));
      if (world.rank() == 0) throw std::runtime_error("gone");
      for (auto& p : pending) p.wait();
    });
    EXPECT_THAT(outcome.whole, HasSubstr("rank 0: gone"));
  }
}

TEST(Failure, TheLastCallsAreWritten) {
  const auto folder = std::filesystem::temp_directory_path() / ("chorus_recorder." + std::to_string(getpid()));
  ThreadOptions options = limit(60);
  options.record_folder = folder;
  options.recorded_calls = 4;
  run(2, options, [](Group& world) {
    for (int i = 0; i < 6; ++i) sum_one(world, 10 + i);
    const auto tp = world.split(world.rank(), 0, "alone");
    if (world.rank() == 1) throw std::runtime_error("disk full");
    world.barrier();
  });
  const std::string zero = read_file(folder / "rank-0.json"), one = read_file(folder / "rank-1.json");
  EXPECT_THAT(one, AllOf(HasSubstr("{\"rank\": 1, \"calls\": ["), HasSubstr("\"op\": \"split\""),
                         ::testing::Not(HasSubstr("\"count\": 12,"))));
  for (const int count : {13, 14, 15})
    EXPECT_THAT(one, HasSubstr("\"group\": \"world\", \"op\": \"all_reduce\", \"type\": \"f32\", \"count\": " +
                               std::to_string(count) + ", \"peer\": -1, "));
  EXPECT_THAT(zero, HasSubstr("\"state\": \"done\""));
  std::filesystem::remove_all(folder);
}

TEST(FlightRecorder, KeepsTheNewestAndSumsAll) {
  FlightRecorder recorder(3, 2);
  EXPECT_EQ(recorder.last(), "none");
  for (std::uint64_t i = 1; i <= 5; ++i) {
    const auto ticket = recorder.post("tp", i, Op::all_gather, DType::f64, 10, -1);
    EXPECT_EQ(ticket, i);
    recorder.set(1, FlightRecorder::State::failed);  // forgotten from the third on
    recorder.set(ticket, i == 5 ? FlightRecorder::State::begun : FlightRecorder::State::done);
  }
  const auto entries = recorder.entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].sequence, 4u);
  EXPECT_EQ(entries[0].state, FlightRecorder::State::done);
  EXPECT_LE(entries[0].posted, entries[0].done);
  EXPECT_EQ(recorder.last(), "all_gather 5 of group 'tp' (begun)");
  const auto total = recorder.totals().at({"tp", Op::all_gather});
  EXPECT_EQ(total.calls, 5);
  EXPECT_EQ(total.bytes, 5 * 10 * 8);
}

}  // namespace
}  // namespace chorus
