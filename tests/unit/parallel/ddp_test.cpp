// Data parallelism equals one rank: loss, every gradient, norm and weights, for any number of ranks and any dealing of rows.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "unit/parallel/ddp_fixture.h"

namespace chorus {
namespace {
using namespace testing;
using ::testing::HasSubstr;

std::string text_of(const DdpCase& c) {
  std::ostringstream text;
  text << c.ranks << " ranks, " << c.micros << " microbatches, dealing " << static_cast<int>(c.dealing) << ", "
       << c.optimizer.name << ", buckets of " << c.options.bucket_size << ", views " << c.options.gradient_as_bucket_view
       << ", overlap " << c.options.overlap_grad_reduce;
  return text.str();
}

/// Leaves of the model have 3 to 120 elements, 441 in all: one bucket each, some, and one for all.
constexpr std::int64_t bucket_sizes[] = {1, 250, std::int64_t{1} << 40};

TEST(Ddp, EqualsOneRank) {
  const DdpOutcome adamw = serial_steps(ddp_adamw), sgd = serial_steps(ddp_sgd);
  int variant = 0;
  for (const int ranks : {1, 2, 3, 5, 7})
    for (const int micros : {1, 3})
      for (const Dealing dealing : {Dealing::uneven, Dealing::idle, Dealing::sorted, Dealing::patchy}) {
        const bool first = ++variant % 2;
        const DdpCase c{.ranks = ranks,
                        .micros = micros,
                        .dealing = dealing,
                        .options = {.bucket_size = bucket_sizes[variant % 3],
                                    .gradient_as_bucket_view = variant % 4 < 2,
                                    .overlap_grad_reduce = variant % 5 > 0},
                        .optimizer = first ? ddp_adamw : ddp_sgd};
        SCOPED_TRACE(text_of(c));
        const auto outcomes = all_ranks(c);
        expect_equal(outcomes.front(), first ? adamw : sgd, 1e-12);
        for (const auto& other : outcomes) EXPECT_TRUE(other == outcomes.front()) << "ranks differ in bits";
      }
}

TEST(Ddp, BucketsViewsAndOverlapDontChangeABit) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16})
    for (const int ranks : {2, 3}) {
      DdpCase c{.ranks = ranks, .micros = 2, .dealing = Dealing::sorted, .options = {}, .dtype = dtype};
      c.options = {.bucket_size = 1, .overlap_grad_reduce = false};
      const DdpOutcome want = all_ranks(c).front();
      for (const auto size : bucket_sizes)
        for (const bool views : {false, true})
          for (const bool overlap : {false, true}) {
            c.options = {.bucket_size = size, .gradient_as_bucket_view = views, .overlap_grad_reduce = overlap};
            EXPECT_TRUE(all_ranks(c).front() == want) << text_of(c) << ' ' << dtype;
          }
    }
}

TEST(Ddp, NarrowTypesAddUpInF32) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto serial = serial_steps(ddp_adamw, dtype);
    const auto outcomes = all_ranks({.ranks = 3, .micros = 2, .dealing = Dealing::uneven, .options = {}, .dtype = dtype});
    // The weights are the same in the first step, gradients rounded where activations are: f32 sums in another order.
    EXPECT_LE(worst(outcomes.front().gradients.front(), serial.gradients.front()), dtype == DType::bf16 ? 2e-2 : 1e-6);
    EXPECT_NEAR(outcomes.front().losses.front(), serial.losses.front(), 1e-5);
  }
}

TEST(Ddp, RanksThatComeLateChangeNothing) {
  const DdpCase c{.ranks = 3, .micros = 2, .dealing = Dealing::patchy, .options = {.bucket_size = 100}};
  const auto want = all_ranks(c);
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    ThreadOptions options;
    options.observe = [seed](const Call& call, int rank) {
      const auto key = random_key(seed, std::to_string(rank) + '/' + std::to_string(call.sequence));
      std::this_thread::sleep_for(std::chrono::microseconds(RandomStream(key).below(2000)));
    };
    const auto got = all_ranks(c, options);
    for (std::size_t r = 0; r < want.size(); ++r) EXPECT_TRUE(got[r] == want[r]) << "rank " << r << ", seed " << seed;
  }
}

TEST(Ddp, LaysLeavesInReverseOrderOnWholeCacheLines) {
  DdpRun run;
  run_ranks(2, {}, [&](Group& world) {
    DdpRun own;
    const auto leaves = std::ssize(own.store.leaves);
    for (const auto size : bucket_sizes) {
      const Ddp ddp(own.store, world, {.bucket_size = size});
      std::vector<std::size_t> order;
      for (const auto& bucket : ddp.buckets()) {
        for (std::size_t i = 0; i < bucket.leaves.size(); ++i) {
          order.push_back(bucket.leaves[i]);
          EXPECT_EQ(bucket.firsts[i] % 64, 0);
        }
        EXPECT_TRUE(bucket.single() || bucket.elements <= size) << bucket.elements;
        EXPECT_TRUE(bucket.single() || own.store.leaves[bucket.leaves.front()]->shape.numel() * 2 < size);
      }
      ASSERT_EQ(std::ssize(order), leaves);
      for (std::int64_t i = 0; i < leaves; ++i)
        EXPECT_EQ(std::ssize(order) - 1 - i, static_cast<std::int64_t>(order[static_cast<std::size_t>(i)]));
      EXPECT_EQ(std::ssize(ddp.buckets()) == leaves, size == 1);
      EXPECT_EQ(ddp.buckets().size() == 1, size > 1000);
    }
  });
}

TEST(Ddp, SumsEachBucketOnceAStepInTheSameOrderOnAllRanks) {
  for (const auto size : bucket_sizes)
    for (const bool overlap : {false, true}) {
      std::vector<std::vector<std::int64_t>> counts(3);
      std::vector<std::int64_t> predicted;
      ThreadOptions options;
      options.threads_per_rank = 1;
      options.observe = [&](const Call& call, int rank) {
        if (call.op == Op::all_reduce) counts[static_cast<std::size_t>(rank)].push_back(call.out.count);
      };
      run_ranks(3, options, [&](Group& world) {
        DdpRun run;
        Ddp ddp(run.store, world, {.bucket_size = size, .overlap_grad_reduce = overlap});
        if (world.rank() == 0)
          for (const auto& bucket : ddp.buckets()) predicted.push_back(bucket.elements);
        ddp.start_step();
        for (int m = 0; m < 3; ++m)
          ddp.backward(run.loss(dealt(ddp_rows(), Dealing::sorted, 3, world.rank(), 3, m), 0.1), m == 2);
        ddp.finish_step();
      });
      for (const auto& count : counts) EXPECT_EQ(count, predicted) << "buckets of " << size << ", overlap " << overlap;
    }
}

TEST(Ddp, SumsBeginAsSoonAsALeafsLastUseHasRun) {
  for (const bool overlap : {true, false}) {
    std::atomic<int> calls = 0;
    ThreadOptions options;
    options.observe = [&](const Call& call, int rank) { calls += rank == 0 && call.op == Op::all_reduce; };
    run_ranks(2, options, [&](Group& world) {
      DdpRun run;
      Ddp ddp(run.store, world, {.bucket_size = 1, .overlap_grad_reduce = overlap});
      std::vector<std::pair<std::string, int>> begun;  // after each op
      ddp.start_step();
      ddp.backward(run.loss(ddp_rows(), 0.1), false);
      if (world.rank() == 0) {
        EXPECT_EQ(calls, 0) << "before the last microbatch";
      }
      ddp.backward(run.loss(ddp_rows(), 0.1), true, {.after = [&](const Node& node) {
                     begun.push_back({node.op, calls.load()});
                   }});
      const int buckets = static_cast<int>(ddp.buckets().size());
      if (world.rank() == 0) {
        EXPECT_EQ(calls, overlap ? buckets : 0);
        // The last norm is the first leaf: its second use comes before most of backward. The table is the last, and its last
        // use the last op.
        EXPECT_EQ(begun.front().second, 0);
        EXPECT_EQ(begun.back().first, "embedding");
        EXPECT_EQ(begun.back().second, overlap ? buckets - 1 : 0);
        EXPECT_EQ(begun[begun.size() / 2 + 4].second > 0, overlap);
      }
      ddp.finish_step();
      if (world.rank() == 0) {
        EXPECT_EQ(calls, buckets);
      }
    });
  }
}

TEST(Ddp, GradientsLieInTheirBucketsAndFrozenParametersHaveNone) {
  run_ranks(2, {}, [](Group& world) {
    for (const bool views : {true, false}) {
      DdpRun run;
      Ddp ddp(run.store, world, {.bucket_size = 250, .gradient_as_bucket_view = views});
      const auto gradients = [&] { return run.context.memory.stats().current[static_cast<std::size_t>(Category::gradients)]; };
      std::int64_t in_buckets = 0, apart = 0;
      for (const auto& bucket : ddp.buckets()) in_buckets += bucket.elements;
      for (const auto& leaf : run.store.leaves) apart += leaf->shape.numel();
      for (int step = 0; step < 2; ++step) {
        ddp.start_step();
        EXPECT_EQ(gradients(), 0u);
        ddp.backward(run.loss(ddp_rows(), 0.1), true);
        ddp.finish_step();
        EXPECT_EQ(gradients(), static_cast<std::size_t>(views ? in_buckets : apart) * sizeof(double));
      }
      EXPECT_FALSE(run.model.frozen.weight.grad());
      run.store.start_step();  // evaluations free gradients this way
      EXPECT_EQ(gradients(), 0u);
    }
  });
}

TEST(Ddp, AloneGradientsStayWhereTheyWere) {
  DdpRun run;
  SoloGroup solo;
  const Ddp ddp(run.store, solo);
  EXPECT_EQ(ddp.buckets().size(), run.store.leaves.size());
  for (const auto& leaf : run.store.leaves) EXPECT_FALSE(leaf->sink.memory);
}

TEST(Ddp, TheFusedLossHandsItsSumOverOrPutsItIntoTheBucket) {
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{1} << 40})
    run_ranks(2, {}, [&](Group& world) {
      DdpRun run;
      const Ddp ddp(run.store, world, {.bucket_size = size});
      Tensor x = Tensor::full(run.context, {2, 6}, DType::f64, 0.5);
      const auto& head = run.model.embedding.weight;
      run.store.start_step();
      const Tensor loss =
          linear_cross_entropy(x, head.value, Tensor::of(run.context, {2}, std::vector<std::int32_t>{1, 2}), {});
      const void* sum = loss.node()->saved[1].data();
      backward(loss);
      EXPECT_EQ(head.grad().data() == sum, size == 1);
    });
}

TEST(Ddp, AParameterThatNobodyUsesIsAnErrorIfAsked) {
  run_ranks(3, {}, [](Group& world) {
    DdpRun run;
    Ddp ddp(run.store, world, {.find_unused_parameters = false});
    // The branch is used by the last rank only, `unused` by none.
    for (const bool with_branch : {true, false}) {
      std::string message;
      ddp.start_step();
      DdpRows rows = dealt(ddp_rows(), Dealing::sorted, 3, world.rank(), 1, 0);
      if (!with_branch) std::erase_if(rows, [](const DdpRow& row) { return row.id < DdpModel::branched; });
      ddp.backward(run.loss(rows, 0.1), true);
      try {
        ddp.finish_step();
      } catch (const Error& error) {
        message = error.what();
      }
      EXPECT_THAT(message, HasSubstr("unused.weight")) << "rank " << world.rank();
      EXPECT_THAT(message, HasSubstr("unused.bias"));
      EXPECT_EQ(message.find("branch.weight") == message.npos, with_branch) << message;
      EXPECT_EQ(message.find("mlp"), message.npos) << message;
      EXPECT_EQ(message.find("frozen"), message.npos) << message;
    }
  });
}

TEST(Ddp, WeightGradientsThatArePutOffAreCounted) {
  const auto steps = [](bool deferred) {
    std::vector<std::vector<double>> gradients(2);
    run_ranks(2, {}, [&](Group& world) {
      DdpRun run;
      Ddp ddp(run.store, world, {.bucket_size = 100});
      ddp.start_step();
      DeferredGrads later;
      ddp.backward(run.loss(dealt(ddp_rows(), Dealing::uneven, 2, world.rank(), 1, 0), 0.1), true,
                   {.deferred = deferred ? &later : nullptr});
      EXPECT_EQ(later.size() > 0, deferred);
      later.run([&](const Node& node) { ddp.ran(node); });
      ddp.finish_step();
      gradients[static_cast<std::size_t>(world.rank())] = gradients_of(run.store);
    });
    EXPECT_EQ(gradients[0], gradients[1]);
    return gradients[0];
  };
  EXPECT_EQ(steps(true), steps(false));
}

TEST(Ddp, MicrobatchesAfterTheLastAreErrors) {
  DdpRun run;
  SoloGroup solo;
  Ddp ddp(run.store, solo);
  ddp.start_step();
  ddp.backward(run.loss(ddp_rows(), 1), true);
  EXPECT_THROW(ddp.backward(run.loss(ddp_rows(), 1), true), Error);
  EXPECT_THROW(ddp.start_step(), Error);
  ddp.finish_step();
  ddp.start_step();
}

/// Ranks of a second axis have a part of each gradient's sum, too: parts of stacked leaves and whole ones.
TEST(Ddp, SumsOverOtherGroupsFollowInOneCallEach) {
  const auto want = serial_steps(ddp_adamw).gradients.front();
  std::vector<std::vector<double>> gradients(6);
  std::atomic<int> calls = 0;
  ThreadOptions options;
  options.observe = [&](const Call& call, int) { calls += call.op == Op::all_reduce; };
  run_ranks(6, options, [&](Group& world) {
    const auto dp = world.split(world.rank() / 2, world.rank(), "dp"), tp = world.split(world.rank() % 2, world.rank(), "tp");
    ASSERT_EQ(dp->size(), 2);
    ASSERT_EQ(tp->size(), 3);
    DdpRun run;
    GradSum sum{tp.get(), {}};
    for (const auto& entry : run.store.trainable) sum.entries.push_back(&entry);
    Ddp ddp(run.store, *dp, {}, {sum});
    ddp.start_step();
    ddp.backward(
        run.loss(dealt(ddp_rows(), Dealing::uneven, 6, world.rank(), 1, 0), 1.0 / static_cast<double>(labels_of(ddp_rows()))),
        true);
    ddp.finish_step();
    gradients[static_cast<std::size_t>(world.rank())] = gradients_of(run.store);
  });
  for (const auto& g : gradients) EXPECT_LE(worst(g, want), 1e-12);
  EXPECT_EQ(calls, 6 * 2);  // one bucket, one other sum

  DdpRun run;
  SoloGroup solo;
  EXPECT_THROW(Ddp(run.store, solo, {}, {{&solo, {&run.store.frozen.front()}}}), Error);
}

}  // namespace
}  // namespace chorus
