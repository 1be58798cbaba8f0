// What plans send, in bytes of a ring, is what the formulas say.
#include <gtest/gtest.h>

#include "models.h"

namespace chorus::testing {
namespace {

ParityRun run_of(bool sequence_parallel, const MeshSizes& sizes, int ranks) {
  ParityVariant variant;
  variant.sequence_parallel = sequence_parallel;
  ParityOptions options;
  options.steps = 1;
  return parity_parallel(parity_model(variant), sizes, ranks, options);
}

class Traffic : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(SequenceParallel, Traffic, ::testing::Bool());

TEST_P(Traffic, OfActivationsIsWhatTheFormulasSay) {
  for (const int t : {2, 4}) {
    const ParityRun run = run_of(GetParam(), {.tp = t}, t);
    ASSERT_EQ(run.bytes_sent.size(), run.bytes_predicted.size());
    for (const auto& [name, bytes] : run.bytes_predicted) EXPECT_NEAR(run.bytes_sent.at(name) / bytes, 1, 1e-12) << name;
  }
}

TEST(TrafficTotals, OfGradientsIsARingsOncePerStep) {
  for (const int d : {2, 3}) {
    const ParityRun run = run_of(false, {}, d);
    ASSERT_EQ(run.bytes_sent.size(), 1u);
    const double sent = run.bytes_sent.at("dp_cp all_reduce"), predicted = run.bytes_predicted.at("dp_cp all_reduce");
    EXPECT_GE(sent, predicted);
    const double gaps = 2 * 64 * 8 * 25;  // each of some twenty-five parameters begins at a multiple of 64 elements
    EXPECT_LE(sent, predicted + gaps);
  }
}

/// ZeRO-1 and ZeRO-2: a ring's reduce_scatter of gradients and all_gather of values, once per step (ZeRO-2 reduces in each
/// microbatch). ZeRO-3: values in forward and once more in backward, of each microbatch, where they are read there.
TEST(TrafficTotals, OfShardedStateIsWhatTheFormulasSay) {
  constexpr double gaps = 64 * 8 * 25;
  for (const Sharding sharding : {Sharding::optimizer, Sharding::gradients, Sharding::full}) {
    for (const int d : {2, 3}) {
      ParityOptions options;
      options.steps = 1;
      options.accumulation = 2;
      options.sharding = sharding;
      options.shards.reshard_after_forward = "always";
      const ParityRun run = parity_parallel(parity_model({}), {}, d, options);
      const double share = static_cast<double>(d - 1) / d, all = share * 8 * static_cast<double>(run.parameters);
      const double reduced = run.bytes_sent.at("dp_shard_cp reduce_scatter"),
                   gathered = run.bytes_sent.at("dp_shard_cp all_gather");
      const double times = sharding == Sharding::optimizer ? 1 : 2;
      EXPECT_GE(reduced, times * all);
      EXPECT_LE(reduced, times * (all + gaps));
      if (sharding == Sharding::full) {  // twice in each of two microbatches, but the tables, which backward doesn't read
        EXPECT_GE(gathered, 2 * all);
        EXPECT_LT(gathered, 4 * all);
      } else {
        EXPECT_GE(gathered, all);
        EXPECT_LE(gathered, all + gaps);
      }
    }
  }
}

TEST(TrafficTotals, IsReportedBesideThePrediction) {
  ParityVariant variant;
  ParityOptions options;
  options.steps = 1;
  const ParityReport report = check_parity(parity_model(variant), {.tp = 2}, 2, options);
  EXPECT_TRUE(report.passed()) << report.text();
  EXPECT_NE(report.text().find("tp all_reduce: "), std::string::npos) << report.text();
  EXPECT_NE(report.text().find(" predicted"), std::string::npos);
}

}  // namespace
}  // namespace chorus::testing
