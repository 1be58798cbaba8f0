#include <chorus/core/rng.h>
#include <chorus/nn/layers/attention.h>
#include <chorus/nn/layers/feed_forward.h>
#include <chorus/nn/materialize.h>
#include <gmock/gmock.h>

#include "gradients.h"

namespace chorus {
namespace {

using ::testing::HasSubstr;

struct Tiny {
  SwiGluMlp mlp{6, 5};
  Linear head{6, 3};
  Dropout dropout{.p = 0.5};
  template <class V>
  void fields(V&& v) {
    v("mlp", mlp);
    v("head", head);
    v("dropout", dropout);
  }
};

std::vector<std::string> paths(const std::vector<ParamStore::Entry>& entries) {
  std::vector<std::string> out;
  for (const auto& e : entries) out.push_back(e.path);
  return out;
}

std::string error_of(auto&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Materialize, NamesEveryLogicalParameterOnce) {
  Context context;
  Tiny tiny;
  const ParamStore store = materialize(tiny, context, {});
  EXPECT_THAT(paths(store.trainable),
              ::testing::ElementsAre("mlp.gate.weight", "mlp.up.weight", "mlp.down.weight", "head.weight", "head.bias"));
  EXPECT_EQ(store.trainable_count(), 5 * 6 + 5 * 6 + 6 * 5 + 3 * 6 + 3);
  EXPECT_EQ(store.frozen_count(), 0);
}

TEST(Materialize, StackedPartsLieTogetherAndAreNoParameter) {
  Context context;
  Tiny tiny;
  const ParamStore store = materialize(tiny, context, {});
  const auto& stacked = tiny.mlp.gate_up.weight;
  EXPECT_EQ(stacked.fused.value.shape(), (Shape{10, 6}));
  const auto fused = stacked.fused.value.to_doubles(), gate = stacked.parts[0].second.value.to_doubles(),
             up = stacked.parts[1].second.value.to_doubles();
  EXPECT_TRUE(std::equal(gate.begin(), gate.end(), fused.begin()));
  EXPECT_TRUE(std::equal(up.begin(), up.end(), fused.begin() + 30));
  const auto& [gate_param, up_param] = std::pair(stacked.parts[0].second, stacked.parts[1].second);
  EXPECT_FALSE(gate_param.grad());
  testing::fill_gradients(store, 0);
  EXPECT_EQ(stacked.fused.value.node()->sink.grad.data(), gate_param.grad().data());
  EXPECT_EQ(gate_param.grad().as<float>() + 30, up_param.grad().data());
  EXPECT_EQ(up_param.grad().shape(), (Shape{5, 6}));
}

TEST(Materialize, InitialValuesDependOnSeedAndPathOnly) {
  Context context;
  Tiny one, other, frozen, seeded;
  materialize(one, context, {.dtype = DType::f32, .seed = 7, .freeze = {}});
  materialize(other, context, {.dtype = DType::f64, .seed = 7, .freeze = {}});
  materialize(frozen, context, {.dtype = DType::f32, .seed = 7, .freeze = {{"mlp"}, {}}});
  materialize(seeded, context, {.dtype = DType::f32, .seed = 8, .freeze = {}});
  const auto a = one.head.weight.value.to_doubles(), b = other.head.weight.value.to_doubles();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i], static_cast<double>(static_cast<float>(b[i])));
  EXPECT_EQ(one.mlp.down.weight.value.to_doubles(), frozen.mlp.down.weight.value.to_doubles());
  EXPECT_NE(a, seeded.head.weight.value.to_doubles());
  EXPECT_NE(one.mlp.gate_up.weight.parts[0].second.value.to_doubles(),
            one.mlp.gate_up.weight.parts[1].second.value.to_doubles());
  for (const double x : a) EXPECT_LE(std::abs(x), std::sqrt(6.0 / 9.0));
}

TEST(Materialize, Bf16ValuesAreRoundedMasters) {
  Context context;
  Tiny tiny;
  const ParamStore store = materialize(tiny, context, {.dtype = DType::bf16, .seed = 7, .freeze = {}});
  EXPECT_EQ(store.masters.dtype(), DType::f32);
  testing::fill_gradients(store, 0);
  EXPECT_EQ(tiny.head.weight.grad().dtype(), DType::f32);
  const auto masters = store.masters.to_doubles(), values = store.values.to_doubles();
  bool rounded = false;
  for (std::size_t i = 0; i < masters.size(); ++i) {
    EXPECT_EQ(values[i], static_cast<double>(bf16(masters[i])));
    rounded = rounded || values[i] != masters[i];
  }
  EXPECT_TRUE(rounded);
}

TEST(Freeze, TakesPatternsAndTheirExceptions) {
  Context context;
  Tiny tiny;
  const ParamStore store = materialize(tiny, context, {.freeze = {{R"(.+\.weight$)"}, {"^head"}}});
  EXPECT_THAT(paths(store.trainable), ::testing::ElementsAre("head.weight", "head.bias"));
  EXPECT_FALSE(tiny.mlp.down.weight.value.requires_grad());
  EXPECT_FALSE(static_cast<bool>(tiny.mlp.down.weight.grad()));
  EXPECT_TRUE(tiny.head.weight.value.requires_grad());
  EXPECT_FALSE(tiny.dropout.frozen);
}

TEST(Freeze, FrozenModuleRunsInEvaluationMode) {
  Context context;
  ConformerFeedForward layer(4, 8, true, 0.5);
  materialize(layer, context, {.freeze = {{".*"}, {}}});
  EXPECT_TRUE(layer.inner_dropout.frozen);
  EXPECT_FALSE(layer.inner_dropout.active({.training = true}));
}

TEST(Freeze, PatternWithoutParameterIsAnError) {
  Context context;
  Tiny tiny;
  EXPECT_THAT(error_of([&] {
                materialize(tiny, context, {.freeze = {{"encoder"}, {}}});
              }),
              ::testing::AllOf(HasSubstr("freeze_params"), HasSubstr("'encoder'"), HasSubstr("none of the 5 parameters")));
  EXPECT_THAT(error_of([&] {
                materialize(tiny, context, {.freeze = {{".*"}, {"mpl"}}});
              }),
              HasSubstr("prevent_freeze_params: 'mpl'"));
  EXPECT_THAT(error_of([&] { materialize(tiny, context, {.freeze = {{"("}, {}}}); }), HasSubstr("no regular expression"));
  EXPECT_THAT(error_of([&] { materialize(tiny, context, {.freeze = {{R"(mlp\.gate)"}, {}}}); }), HasSubstr("frozen together"));
}

TEST(ParamStore, UnusedParametersGetZeroGradients) {
  Context context;
  Tiny tiny;
  const ParamStore store = materialize(tiny, context, {});
  testing::fill_gradients(store, 3);
  store.start_step();
  add_to_sink(*tiny.head.bias.value.node(), Tensor::full(context, {3}, DType::f32, 2));
  store.finish_step();
  EXPECT_EQ(tiny.head.bias.grad().to_doubles(), std::vector<double>(3, 2));
  EXPECT_EQ(tiny.head.weight.grad().to_doubles(), std::vector<double>(18, 0));
}

TEST(ParamStore, GradientsTakeMemoryFromTheFirstToTheNextStep) {
  Context context;
  Tiny tiny;
  const ParamStore store = materialize(tiny, context, {});
  const auto held = [&] { return context.memory.stats().current[static_cast<std::size_t>(Category::gradients)]; };
  EXPECT_EQ(held(), 0u);
  store.start_step();
  add_to_sink(*tiny.head.bias.value.node(), Tensor::full(context, {3}, DType::f32, 2));
  EXPECT_LT(held(), 64u + 1);
  store.finish_step();
  EXPECT_GE(held(), static_cast<std::size_t>(store.trainable_count()) * sizeof(float));
  store.start_step();
  EXPECT_EQ(held(), 0u);
}

}  // namespace
}  // namespace chorus
