// What ranks exchange when backward computes layers again: their activations once more, values of parameters not.
#include <gtest/gtest.h>

#include "models.h"

namespace chorus::testing {
namespace {

ParityRun recomputed_run(Recompute mode, bool sequence_parallel, const MeshSizes& sizes, int ranks,
                         ParityOptions options = {}) {
  ParityVariant variant;
  variant.sequence_parallel = sequence_parallel;
  options.steps = 1;
  options.recompute = mode;
  return parity_parallel(parity_model(variant), sizes, ranks, options);
}

TEST(RecomputeTraffic, OfActivationsIsAForwardPassOfTheLayersMore) {
  constexpr double layers = 2;
  for (const Recompute mode : {Recompute::full, Recompute::selective}) {
    const auto tensor = recomputed_run(Recompute::none, false, {.tp = 2}, 2).bytes_sent,
               tensor_again = recomputed_run(mode, false, {.tp = 2}, 2).bytes_sent;
    // Each layer sums two activations; without recomputation there are four a layer, the embedding's and the loss's.
    const double sum = tensor.at("tp all_reduce") / (4 * layers + 2);
    EXPECT_NEAR(tensor_again.at("tp all_reduce"), tensor.at("tp all_reduce") + 2 * layers * sum, 1e-9 * sum);
    EXPECT_EQ(tensor_again.at("tp all_gather"), tensor.at("tp all_gather"));

    const auto rows = recomputed_run(Recompute::none, true, {.tp = 2}, 2).bytes_sent,
               rows_again = recomputed_run(mode, true, {.tp = 2}, 2).bytes_sent;
    // Each layer gathers two activations and scatters the sums of two.
    const double part = rows.at("tp reduce_scatter") / (4 * layers + 1);
    EXPECT_NEAR(rows_again.at("tp reduce_scatter"), rows.at("tp reduce_scatter") + 2 * layers * part, 1e-9 * part);
    EXPECT_NEAR(rows_again.at("tp all_gather"), rows.at("tp all_gather") + 2 * layers * part, 1e-9 * part);
    EXPECT_EQ(rows_again.at("tp all_reduce"), rows.at("tp all_reduce"));
  }
}

// The repetition and the walk behind it find the values of their unit gathered once.
TEST(RecomputeTraffic, OfShardedParametersIsTheSame) {
  for (const Sharding sharding : {Sharding::optimizer, Sharding::gradients, Sharding::full}) {
    ParityOptions options;
    options.sharding = sharding;
    options.accumulation = 2;
    const auto kept = recomputed_run(Recompute::none, false, {}, 2, options).bytes_sent,
               again = recomputed_run(Recompute::full, false, {}, 2, options).bytes_sent;
    EXPECT_EQ(kept, again);
    EXPECT_GT(kept.at("dp_shard_cp all_gather"), 0);
  }
}

}  // namespace
}  // namespace chorus::testing
