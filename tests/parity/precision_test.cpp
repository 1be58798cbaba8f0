// bf16 on ranks against f32 on one. A value of bf16 is off by up to u = 2^-9 of itself. Between an embedding and the loss some
// r = 24 roundings lie on the way of each value in two blocks (norm, q k v, rotary, attention, projection and sum; norm, gate
// and up, product, projection and sum; of each block, then norm and logits), which add up like a random walk: u * sqrt(r) =
// 0.0096. Of a mean over labels not more than that is left. Gradients pass twice as many, and the worst of some thousand
// elements lies about four deviations out: 4 * u * sqrt(2 r) = 0.054 of the largest element.
#include <gtest/gtest.h>

#include <cmath>

#include "models.h"

namespace chorus::testing {
namespace {

constexpr double u = 1.0 / 512;

class Bf16 : public ::testing::TestWithParam<std::tuple<bool, bool>> {};
INSTANTIATE_TEST_SUITE_P(SequenceParallelAndUnitsInF32, Bf16, ::testing::Combine(::testing::Bool(), ::testing::Bool()));

TEST_P(Bf16, AgreesWithF32OnOneRank) {
  const auto model = parity_model({.model = "decoder",
                                   .kv_heads = 2,
                                   .sequence_parallel = std::get<0>(GetParam()),
                                   .freeze = {},
                                   .without_labels = {},
                                   .without_audio = {}});
  ParityOptions options;
  options.steps = 1;
  options.split_sums = false;  // a cut into large parts that cancel would cost digits
  options.dtype = DType::f32;
  const ParityRun serial = parity_serial(model, options);
  options.dtype = DType::bf16;
  // With all units in f32 what is left is rounded between them: embedded rows, what each block gives, and the last norm twice.
  const double roundings = std::get<1>(GetParam()) ? 5 : 24;
  if (std::get<1>(GetParam()))
    options.precision.units = {{"llm.embedding|llm.layers.*|llm.head", DType::f32, std::nullopt, std::nullopt}};
  const ParityReport report = compare(serial, parity_parallel(model, {.tp = 2}, 4, options));
  EXPECT_LT(report.loss.difference, u * std::sqrt(roundings)) << report.text();
  EXPECT_LT(report.norm.difference, u * std::sqrt(roundings)) << report.text();
  EXPECT_LT(report.gradient.difference, 4 * u * std::sqrt(2 * roundings)) << report.text();
  EXPECT_GT(report.gradient.difference, u / 16) << "this was no bf16";
}

/// Sums are in order of ranks wherever they are made, and a step without clipping works on each element by itself: what ranks
/// shard changes no bit, in any type. (With several microbatches sums are added in another order.)
TEST(Precision, ShardingGivesTheBitsOfDdp) {
  const Precision of_units{.units = {{"llm.embedding", DType::f32, std::nullopt, std::nullopt},
                                     {"llm.layers.*", std::nullopt, DType::bf16, DType::f32},
                                     {"encoder.layers.0", DType::f32, DType::bf16, std::nullopt}}};
  struct Types {
    DType dtype;
    Precision precision;
  };
  for (const auto& [dtype, precision] :
       {Types{DType::bf16, {}}, Types{DType::f32, {}}, Types{DType::bf16, of_units}, Types{DType::bf16, {.masters = false}}}) {
    for (const char* frozen : {"", "llm\\.layers\\.0\\."}) {
      ParityVariant variant;
      variant.model = "salm";
      variant.tied = !precision.units.empty();
      if (*frozen) variant.freeze = {frozen};
      ParityOptions options;
      options.dtype = dtype;
      options.precision = precision;
      options.gradient_clip = 0;
      options.optimizer = {.eps = 1e-3};
      const ParityRun ddp = parity_parallel(parity_model(variant), {}, 3, options);
      for (const Sharding sharding : {Sharding::optimizer, Sharding::gradients, Sharding::full}) {
        options.sharding = sharding;
        const ParityRun run = parity_parallel(parity_model(variant), {}, 3, options);
        EXPECT_TRUE(run.initial == ddp.initial) << dtype << ' ' << name(sharding);
        EXPECT_TRUE(run.losses == ddp.losses) << dtype << ' ' << name(sharding);
        EXPECT_TRUE(run.gradients == ddp.gradients) << dtype << ' ' << name(sharding);
        EXPECT_TRUE(run.weights == ddp.weights) << dtype << ' ' << name(sharding);
      }
    }
  }
}

}  // namespace
}  // namespace chorus::testing
