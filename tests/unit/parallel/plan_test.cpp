#include <chorus/nn/layers/feed_forward.h>
#include <chorus/parallel/plan.h>
#include <chorus/tensor/ops/pointwise.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

using namespace placement;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A block of a decoder without attention.
struct Block {
  RmsNorm norm{6};
  SwiGluMlp mlp{6, 7};
  Port in;
  Slot<Tensor(Tensor)> core;
  Tensor operator()(const Tensor& x) const { return chorus::add(x, mlp(norm(in(x)))); }
  template <class V>
  void fields(V&& v) {
    v("norm", norm);
    v("mlp", mlp);
    v("in", in);
    v("core", core);
  }
};

Plan good() {
  Plan plan;
  plan.params = {{"norm.weight", {{"tp", same}}},
                 {"mlp.gate.weight|mlp.up.weight", {{"tp", shard(0)}}},
                 {"mlp.down.weight", {{"tp", shard(1)}}}};
  plan.ports = {{"mlp.in", "tp", copy}, {"mlp.down.out", "tp", same}};
  return plan;
}

std::string refusal(const Plan& plan, bool run = false) {
  Block block;
  Mesh mesh(mesh_shape({.tp = 2}, 2), 1);
  Context context;
  try {
    apply(plan, block, mesh);
    if (run)
      check_layouts(block, context, DType::f32, [&] {
        Layout layout{{"tp", same}};
        Tensor x = Tensor::zeros(context, {0, 6}, DType::f32);
        x.set_layout(std::make_shared<const Layout>(layout));
        block(x);
      });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PathMatches, TakesStarsAndAlternatives) {
  EXPECT_TRUE(path_matches("a.*.w|b", "a.0.x.w"));
  EXPECT_TRUE(path_matches("a.*.w|b", "b"));
  EXPECT_FALSE(path_matches("a.*.w|b", "a.w"));
  EXPECT_FALSE(path_matches("a", "ab"));
  EXPECT_TRUE(path_matches("*b*", "abc"));
}

TEST(Plan, GivesBoxesLayoutsAndPorts) {
  Block block;
  Mesh mesh(mesh_shape({.tp = 2}, 2), 1);
  apply(good(), block, mesh);
  const Param& up = block.mlp.gate_up.weight.parts[1].second;
  EXPECT_EQ(up.box.begin, (Shape{3, 0}));
  EXPECT_EQ(up.box.size, (Shape{4, 6}));
  EXPECT_EQ(up.layout, (Layout{{"tp", shard(0), 7}}));
  EXPECT_TRUE(up.counted);
  EXPECT_FALSE(block.norm.weight.counted) << "the first rank counts what all have";
  EXPECT_TRUE(block.mlp.down.out.hook && !block.in.hook);
  EXPECT_EQ(refusal(good(), true), "");
}

TEST(Plan, SaysEverythingThatDoesntFit) {
  Plan plan = good();
  plan.params[1].placements[0].unit = 2;  // seven rows are three units and a half
  plan.params.push_back({"norm.*", {{"tp", same}}});
  plan.params.push_back({"nobody", {{"tp", same}}});
  plan.params.erase(plan.params.begin() + 2);
  plan.ports.push_back({"mlp.nowhere", "tp", copy});
  plan.slot("core", std::function<Tensor(Tensor, Tensor)>([](Tensor x, Tensor) { return x; }));
  plan.slot("no_core", std::function<Tensor(Tensor)>([](Tensor x) { return x; }));
  EXPECT_THAT(refusal(plan),
              AllOf(HasSubstr("mlp.gate.weight (7, 6): dim 0 of 7 elements is 3 units of 2 and a rest"),
                    HasSubstr("parameter rule 'norm.*' matches none, or none that is left"),
                    HasSubstr("parameter rule 'nobody' matches none"), HasSubstr("no rule for parameter mlp.down.weight"),
                    HasSubstr("port rule 'mlp.nowhere' matches no port"), HasSubstr("slot core has another signature"),
                    HasSubstr("slot rule 'no_core' matches no slot")));
}

/// Each of these would give wrong numbers without a sign.
TEST(Plan, WhatMustNotMeetIsAnErrorBeforeThereIsMemory) {
  Plan no_in = good(), no_out = good(), norm_copy = good(), down_rows = good();
  no_in.ports.erase(no_in.ports.begin());
  EXPECT_THAT(refusal(no_in, true),
              HasSubstr("linear has no rule for inputs that lie along tp as (0, 6) same, (8, 6) shard(0) of 2 parts"));
  no_out.ports.pop_back();
  EXPECT_THAT(refusal(no_out, true), HasSubstr("add has no rule for inputs that lie along tp as (0, 6) same, (0, 6) sum"));
  norm_copy.params[0].placements[0].placement = copy;
  EXPECT_THAT(refusal(norm_copy, true),
              HasSubstr("rms_norm has no rule for inputs that lie along tp as (0, 6) same, (6) copy"));
  down_rows.params[2].placements[0].placement = copy;
  EXPECT_THAT(refusal(down_rows, true), HasSubstr("linear"));
}

TEST(Plan, PartsTakeThePathOfTheirOwner) {
  Plan whole;
  whole.add("block.*", good());
  EXPECT_EQ(whole.params[1].pattern, "block.*.mlp.gate.weight|block.*.mlp.up.weight");
  EXPECT_EQ(whole.ports[0].pattern, "block.*.mlp.in");
}

}  // namespace
}  // namespace chorus
