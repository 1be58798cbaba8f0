#include <chorus/nn/layers/attention.h>
#include <chorus/nn/layers/feed_forward.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/parallel/group/threads.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradients.h"

namespace chorus {
namespace {

struct Mixed {
  SwiGluMlp mlp{6, 5};
  RotaryAttention attention{6, {.heads = 3, .kv_heads = 1, .head_dim = 2}};
  Linear head{6, 3};
  template <class V>
  void fields(V&& v) {
    v("mlp", mlp);
    v("attention", attention);
    v("head", head);
  }
};

TEST(GradNorm, CountsEveryLogicalElementOnce) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    Context context;
    Mixed module;
    const ParamStore store = materialize(module, context, {.dtype = dtype, .seed = 1, .freeze = {}});
    std::int64_t elements = 0;
    for_each_param(module, [&](const std::string&, Param& p) { elements += p.global.numel(); });
    EXPECT_EQ(elements, 5 * 6 * 3 + (6 + 2 + 2) * 6 + 6 * 6 + 3 * 6 + 3);
    testing::fill_gradients(store, 1);
    SoloGroup group;
    const double norm = grad_norm(store, group);
    EXPECT_NEAR(norm * norm, static_cast<double>(elements), 1e-9) << dtype;
    EXPECT_EQ(elements, store.trainable_count());
  }
}

TEST(GradNorm, LeavesFrozenParametersOut) {
  Context context;
  Mixed module;
  const ParamStore store = materialize(module, context, {.dtype = DType::f64, .seed = 1, .freeze = {{"mlp"}, {}}});
  testing::fill_gradients(store, 2);
  SoloGroup group;
  EXPECT_NEAR(grad_norm(store, group), 2 * std::sqrt((6 + 2 + 2) * 6 + 6 * 6 + 3 * 6 + 3), 1e-12);
}

TEST(GradNorm, IsNotFiniteIfAnyGradientIsNot) {
  Context context;
  Mixed module;
  const ParamStore store = materialize(module, context, {.dtype = DType::f32, .seed = 1, .freeze = {}});
  SoloGroup group;
  for (const float bad : {INFINITY, NAN}) {
    testing::fill_gradients(store, 1);
    module.head.bias.grad().as<float>()[2] = bad;
    EXPECT_FALSE(std::isfinite(grad_norm(store, group)));
  }
}

TEST(GradNorm, SumsSquaresOverTheGroup) {
  Context context;
  Mixed module;
  const ParamStore store = materialize(module, context, {.dtype = DType::f64, .seed = 1, .freeze = {}});
  testing::fill_gradients(store, 1);
  SoloGroup solo;
  const double alone = grad_norm(store, solo);
  run_ranks(9, {}, [&](Group& nine) { EXPECT_NEAR(grad_norm(store, nine), 3 * alone, 1e-12); });
}

/// Two ranks of one model: each has half of the first weight, both have all the rest, which the first counts.
TEST(GradNorm, OwnersCountWhatSeveralRanksHold) {
  run_ranks(2, {}, [](Group& world) {
    Context context;
    Mixed module;
    const ParamStore store = materialize(module, context, {.dtype = DType::f32, .seed = 1, .freeze = {}});
    testing::fill_gradients(store, 1);
    const std::int64_t sharded = module.mlp.gate_up.weight.parts[0].second.global.numel();
    if (world.rank() == 1)
      for (const auto& entry : store.trainable)
        entry.param->counted = entry.param == &module.mlp.gate_up.weight.parts[0].second;
    const double norm = grad_norm(store, world);
    EXPECT_EQ(std::llround(norm * norm), store.trainable_count() + sharded);
    EXPECT_NEAR(norm * norm, static_cast<double>(store.trainable_count() + sharded), 1e-9);
    if (world.rank() == 1) module.mlp.gate_up.weight.parts[0].second.grad().as<float>()[0] = NAN;
    EXPECT_TRUE(std::isnan(grad_norm(store, world))) << "rank " << world.rank() << " does not see the other's";
  });
}

TEST(JudgeStep, LetsNothingThroughThatIsNotFiniteAndSkipsSoManyOnly) {
  EXPECT_EQ(judge_step(1, 2, 0, 0), StepVerdict::update);
  for (const double bad : {double{INFINITY}, -double{INFINITY}, double{NAN}}) {
    EXPECT_EQ(judge_step(bad, 1, 0, 0), StepVerdict::stop);
    EXPECT_EQ(judge_step(1, bad, 0, 0), StepVerdict::stop);
    EXPECT_EQ(judge_step(bad, bad, 2, 3), StepVerdict::skip);
    EXPECT_EQ(judge_step(bad, 1, 3, 3), StepVerdict::stop);
  }
}

TEST(GradNorm, ClippingBringsTheNormDownAndNeverUp) {
  EXPECT_EQ(clip_factor(8, 2), 0.25);
  EXPECT_EQ(clip_factor(1.5, 2), 1);
  EXPECT_EQ(clip_factor(2, 2), 1);
  EXPECT_EQ(clip_factor(0, 2), 1);
  EXPECT_EQ(clip_factor(1e9, 0), 1);  // 0 switches clipping off
}

}  // namespace
}  // namespace chorus
