// Whatever ranks share out, they train as one does.
#include <chorus/core/rng.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/parallel/group/threads.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sharded_fixture.h"

namespace chorus::testing {
namespace {

struct ShardCase {
  Sharding sharding = Sharding::full;
  int ranks = 2, replicas = 1, accumulation = 1;
  bool tied = true, frozen = false;
  ShardingOptions shards{};
  std::string name() const {
    return std::string(chorus::name(sharding)) + " on " + std::to_string(ranks) + " ranks, " + std::to_string(replicas) +
           " replicas, " + std::to_string(accumulation) + " microbatches" + (tied ? ", tied" : "") +
           (frozen ? ", frozen" : "") + ", reshard " + shards.reshard_after_forward +
           (shards.defer_grad_sync ? ", deferred" : "");
  }
  ParityModel<Tower> model() const {
    return tower(tied, frozen ? FreezeRules{{"blocks\\.1\\.", "blocks\\.3\\.norm"}, {}} : FreezeRules{});
  }
  ParityOptions options() const {
    ParityOptions options;
    options.accumulation = accumulation;
    options.sharding = sharding;
    options.shards = shards;
    return options;
  }
  MeshSizes sizes() const {
    MeshSizes sizes;
    sizes.dp_replicate = replicas;
    return sizes;
  }
};

constexpr Sharding every_sharding[] = {Sharding::optimizer, Sharding::gradients, Sharding::full};

void expect_equal(const ShardCase& c) {
  const auto serial = parity_serial(c.model(), {.accumulation = c.accumulation});
  ParityOptions options = c.options();
  const auto run = parity_parallel(c.model(), c.sizes(), c.ranks, options);
  const ParityReport report = compare(serial, run);
  EXPECT_TRUE(report.passed()) << c.name() << '\n' << report.text();
  options.shards.overlap = false;
  const auto other = parity_parallel(c.model(), c.sizes(), c.ranks, options);
  EXPECT_TRUE(run.losses == other.losses) << c.name();
  EXPECT_TRUE(run.gradients == other.gradients) << c.name();
  EXPECT_TRUE(run.weights == other.weights) << c.name() << ": what is gathered ahead changes bits";
}

TEST(Sharded, EqualsOneRankOnAnyNumberOfRanks) {
  for (const Sharding sharding : every_sharding)
    for (const int ranks : {1, 2, 3, 5, 7}) expect_equal({.sharding = sharding, .ranks = ranks});
}

TEST(Sharded, EqualsOneRankWithReplicas) {
  for (const Sharding sharding : every_sharding) {
    expect_equal({.sharding = sharding, .ranks = 4, .replicas = 2});
    expect_equal({.sharding = sharding, .ranks = 6, .replicas = 2, .accumulation = 2});
    expect_equal({.sharding = sharding, .ranks = 3, .replicas = 3});
  }
}

TEST(Sharded, ReducesEachMicrobatchOrTheLastOnly) {
  for (const Sharding sharding : every_sharding)
    for (const bool deferred : {false, true})
      for (const int ranks : {1, 2, 3})
        expect_equal({.sharding = sharding, .ranks = ranks, .accumulation = 3, .shards = {.defer_grad_sync = deferred}});
}

TEST(Sharded, LetsGoOfValuesBetweenForwardAndBackwardOrNot) {
  for (const char* reshard : {"auto", "always", "never"})
    for (const bool tied : {false, true})
      expect_equal({.ranks = 3, .accumulation = 2, .tied = tied, .shards = {.reshard_after_forward = reshard}});
}

TEST(Sharded, FrozenParametersAreSharedOutAndHaveNoGradient) {
  for (const Sharding sharding : every_sharding)
    for (const bool tied : {false, true})
      expect_equal({.sharding = sharding, .ranks = 3, .accumulation = 2, .tied = tied, .frozen = true});
}

/// Samples decide which blocks a rank's rows pass: some ranks have even ones only, one has none.
TEST(Sharded, RanksWhoseRowsLeaveUnitsOutTakePart) {
  for (const Sharding sharding : every_sharding) {
    const ShardCase c{.sharding = sharding, .ranks = 3, .accumulation = 2};
    ParityOptions options = c.options();
    options.deal = [](int rank, int microbatch) -> std::vector<int> {
      if (rank == 0) return microbatch == 0 ? std::vector{0, 2} : std::vector{4};
      if (rank == 1) return microbatch == 0 ? std::vector{1, 3, 5} : std::vector{6};
      return {};
    };
    const auto report = compare(parity_serial(c.model()), parity_parallel(c.model(), c.sizes(), c.ranks, options));
    EXPECT_TRUE(report.passed()) << c.name() << '\n' << report.text();
  }
}

TEST(Sharded, DelaysOfRanksChangeNoBit) {
  for (const Sharding sharding : every_sharding) {
    for (const int replicas : {1, 2}) {
      const ShardCase c{.sharding = sharding, .ranks = 2 * replicas, .replicas = replicas, .accumulation = 2};
      ParityOptions options = c.options();
      const auto run = parity_parallel(c.model(), c.sizes(), c.ranks, options);
      for (const std::uint64_t seed : {1, 2}) {
        options.delays = seed;
        const auto delayed = parity_parallel(c.model(), c.sizes(), c.ranks, options);
        EXPECT_TRUE(run.weights == delayed.weights) << c.name();
        EXPECT_TRUE(run.gradients == delayed.gradients) << c.name();
      }
    }
  }
}

/// Only the last product of the first block trains, and nothing before it: backward reads no value of that block, but where the
/// block is computed again all of them.
TEST(Sharded, BlocksThatAreRepeatedAreGatheredForThat) {
  for (const char* reshard : {"auto", "always", "never"}) {
    ShardCase c{.ranks = 2, .accumulation = 2, .tied = false, .shards = {.reshard_after_forward = reshard}};
    const auto model = tower(false, {{"embedding", "blocks\\.2\\.norm", "blocks\\.2\\.mlp\\.(gate|up)"}, {}});
    ParityOptions options = c.options();
    const auto serial = parity_serial(model, {.accumulation = 2});
    const auto kept = parity_parallel(model, c.sizes(), c.ranks, options);
    options.recompute = Recompute::full;
    const auto repeated = parity_parallel(model, c.sizes(), c.ranks, options);
    EXPECT_TRUE(compare(serial, kept).passed()) << reshard << compare(serial, kept).text();
    EXPECT_TRUE(kept.gradients == repeated.gradients) << reshard;
    EXPECT_TRUE(kept.weights == repeated.weights) << reshard;
    // Gathered once for the repetition and what follows it: no more than without, but for that block.
    if (std::string(reshard) == "always") {
      EXPECT_LT(repeated.bytes_sent.at("dp_shard_cp all_gather"), 1.3 * kept.bytes_sent.at("dp_shard_cp all_gather"));
    }
  }
}

TEST(Sharded, AnOpThatReadsTwoUnitsIsRefused) {
  Context context;
  SoloGroup alone;
  Mesh mesh(alone, mesh_shape({}, 1));
  Tower model(false);
  ParamStore store = materialize(model, context, {.dtype = DType::f64, .shard = store_shard(Sharding::full, mesh)});
  const auto walk = [&] {
    return record("add", Tensor::zeros(context, {}, DType::f64), {model.embedding.weight.value, model.head->weight.value}, {},
                  [](const Backward& b) {
                    return Grads{b.dy, b.dy};
                  });
  };
  try {
    ShardedDataParallel(store, Sharding::full, mesh, alone, {}, walk);
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("add reads values of two units, 'embedding' and 'head'"));
  }
}

/// The order of gathers is that of execution: blocks 2, 0, 1, 3, the table before and after them.
TEST(Sharded, TheScheduleIsThatOfAWalkThroughTheModel) {
  run_ranks(2, {}, [](Group& world) {
    Context context;
    Mesh mesh(world, mesh_shape({}, world.size()));
    Tower model(false);
    ParamStore store = materialize(model, context, {.dtype = DType::f64, .shard = store_shard(Sharding::full, mesh)});
    const ShardedDataParallel sharded(store, Sharding::full, mesh, *mesh.axis("dp_shard_cp").group, {},
                                      [&] { return model.loss(context, {}, {}, false); });
    const auto path = [&](int unit) { return sharded.units()[static_cast<std::size_t>(unit)]; };
    std::vector<std::string> forward, backward;
    for (const int unit : sharded.schedule().forward) forward.push_back(path(unit));
    for (const auto& [kind, unit] : sharded.schedule().backward)
      backward.push_back(std::string(kind == UnitSchedule::Event::gather   ? "gather "
                                     : kind == UnitSchedule::Event::reduce ? "reduce "
                                                                           : "release ") +
                         path(unit));
    EXPECT_THAT(forward, ::testing::ElementsAre("embedding", "blocks.2", "blocks.0", "blocks.1", "blocks.3", "", "head"));
    EXPECT_THAT(backward, ::testing::ElementsAre("reduce head", "reduce ", "reduce blocks.3", "release ", "release blocks.3",
                                                 "gather blocks.1", "reduce blocks.1", "release blocks.1", "gather blocks.0",
                                                 "reduce blocks.0", "release blocks.0", "gather blocks.2", "reduce blocks.2",
                                                 "reduce embedding", "release blocks.2"));
  });
}

TEST(Sharded, ReadingOutOfOrderIsAnErrorThatNamesTheUnit) {
  try {
    run_ranks(2, {}, [](Group& world) {
      Context context;
      Mesh mesh(world, mesh_shape({}, world.size()));
      Tower model(false);
      ParamStore store = materialize(model, context, {.dtype = DType::f64, .shard = store_shard(Sharding::full, mesh)});
      ShardedDataParallel sharded(store, Sharding::full, mesh, *mesh.axis("dp_shard_cp").group, {},
                                  [&] { return model.loss(context, {}, {}, false); });
      sharded.start_step();
      const Tensor x = Tensor::zeros(context, {2, Tower::hidden}, DType::f64);
      model.blocks[1](model.blocks[3](x));
    });
    FAIL() << "nobody noticed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("'blocks.1'"));
  }
}

/// What a rank has of a step's beginning is let go of: a unit and the next are there at a time.
TEST(Sharded, AtMostTwoUnitsAndTheRootAreThereAtATime) {
  run_ranks(3, {}, [](Group& world) {
    Context context;
    Mesh mesh(world, mesh_shape({}, world.size()));
    Tower model(false);
    ParamStore store = materialize(model, context, {.dtype = DType::f64, .shard = store_shard(Sharding::full, mesh)});
    ShardedDataParallel sharded(store, Sharding::full, mesh, *mesh.axis("dp_shard_cp").group,
                                {.reshard_after_forward = "always"}, [&] { return model.loss(context, {}, {}, false); });
    std::int64_t block = 0, root = 0, table = Tower::vocabulary * Tower::hidden;
    for (const auto& buffer : store.flat_buffers) {
      if (buffer.unit == "blocks.0") block += buffer.elements;
      if (buffer.unit.empty()) root += buffer.elements;
    }
    sharded.start_step();
    context.memory.reset_peak();
    const std::vector<std::int32_t> ids{3, 1, 4}, labels{1, 5, 9};
    sharded.backward(model.loss(context, ids, labels, false), true);
    sharded.finish_step();
    const auto at = static_cast<std::size_t>(Category::communication);
    // Values of two units and the root; gradients of one unit being computed and of one being summed.
    const std::int64_t most = std::max(block, table) * 2 + root + 2 * std::max(block, table) + root;
    EXPECT_LE(context.memory.stats().peak[at], static_cast<std::size_t>(most + 64) * sizeof(double));
    EXPECT_EQ(context.memory.stats().current[at], 0u) << "something gathered was kept";
  });
}

}  // namespace
}  // namespace chorus::testing
