// The formulas of a rank's memory in numbers worked out by hand.
#include <chorus/parallel/memory_formulas.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

/// Bytes per parameter on d ranks: a part on every one, and a part that all share.
struct StateCase {
  Sharding sharding;
  DType type;
  double whole, shared;
};

TEST(MemoryFormulas, OfModelStateAreThoseOfZero) {
  for (const auto& [sharding, type, whole, shared] : {StateCase{Sharding::none, DType::f32, 16, 0},
                                                      {Sharding::optimizer, DType::f32, 8, 8},
                                                      {Sharding::gradients, DType::f32, 4, 12},
                                                      {Sharding::full, DType::f32, 0, 16},
                                                      {Sharding::none, DType::bf16, 18, 0},
                                                      {Sharding::optimizer, DType::bf16, 6, 12},
                                                      {Sharding::gradients, DType::bf16, 2, 16},
                                                      {Sharding::full, DType::bf16, 0, 18}})
    for (const int d : {1, 2, 3, 8})
      EXPECT_DOUBLE_EQ(shared_state(whole_state(type, 2), sharding, d).total(), whole + shared / d)
          << name(sharding) << type << d;
  EXPECT_EQ(whole_state(DType::f32, 2), (StateBytes{4, 4, 8}));
  EXPECT_EQ(whole_state(DType::bf16, 2), (StateBytes{2, 4, 12}));
  EXPECT_EQ(whole_state(DType::bf16, 0), (StateBytes{2, 4, 4})) << "SGD without momentum has masters only";
  EXPECT_EQ(whole_state(DType::bf16, 2, false), (StateBytes{2, 4, 8})) << "without masters";
  EXPECT_EQ(whole_state(DType::f64, 1), (StateBytes{8, 8, 8}));
  EXPECT_EQ(shared_state({2, 4, 12}, Sharding::gradients, 4), (StateBytes{2, 1, 3}));
  EXPECT_THROW(shared_state({2, 4, 12}, Sharding::full, 0), Error);
}

/// Table 2 of Korthikanti et al. for s 2048, micro batch 4, h 6144, a 64 (their model of 22 billion parameters), t 8.
TEST(MemoryFormulas, QuotedOfALayerAreThoseOfThePaper) {
  const LayerRows rows{2048 * 4, 2048};
  const double sbh = 2048. * 4 * 6144, scores = 5. * 64 * 2048 / 6144;
  const auto quoted = [&](Recompute mode, LayerCut cut) { return quoted_for_layer(6144, 64, rows, 2, mode, cut); };
  EXPECT_DOUBLE_EQ(quoted(Recompute::none, {}), sbh * (34 + scores));
  EXPECT_DOUBLE_EQ(quoted(Recompute::none, {8, false}), sbh * (10 + 24. / 8 + scores / 8));
  EXPECT_DOUBLE_EQ(quoted(Recompute::none, {8, true}), sbh / 8 * (34 + scores));
  EXPECT_DOUBLE_EQ(quoted(Recompute::selective, {8, false}), sbh * (10 + 24. / 8));
  EXPECT_DOUBLE_EQ(quoted(Recompute::selective, {8, true}), sbh * 34 / 8);
  EXPECT_DOUBLE_EQ(quoted(Recompute::full, {8, false}), sbh * 2);
  EXPECT_DOUBLE_EQ(quoted(Recompute::full, {8, true}), sbh * 2 / 8);
}

TEST(MemoryFormulas, OfALayerAreItsTensors) {
  // 100 rows are stored as 128. Queries 4 heads, keys and values 2, of 8 features; hidden 32, inner 48.
  const DecoderLayerShape layer{32, 4, 2, 8, 48};
  const double statistics = 4 * 2 * 100, lse = 4 * 32 * 100;
  EXPECT_EQ(kept_by_layer(layer, {100, 60}, DType::bf16, Recompute::none),
            2 * 128 * (32 + 64 + 32 + 32 + 96) + lse + statistics);
  // One of two ranks, without and with rows shared out: 50 rows are stored as 64.
  EXPECT_EQ(kept_by_layer(layer, {100, 60}, DType::bf16, Recompute::none, {2, false}),
            2 * 128 * (32 + 32 + 16 + 32 + 48) + lse + statistics);
  EXPECT_EQ(kept_by_layer(layer, {100, 60}, DType::bf16, Recompute::none, {2, true}),
            2 * (64 * (32 + 32) + 128 * (32 + 16 + 48)) + lse + statistics / 2);
  EXPECT_EQ(kept_by_layer(layer, {100, 60}, DType::f32, Recompute::full, {2, true}), 4 * 64 * 32);
}

}  // namespace
}  // namespace chorus
