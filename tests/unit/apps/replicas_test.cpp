// Ranks that hold the same part of a model are compared bit by bit.
#include <chorus/apps/replicas.h>
#include <chorus/nn/layers/feed_forward.h>
#include <chorus/parallel/group/threads.h>
#include <chorus/parallel/plan.h>
#include <chorus/parallel/sharded.h>
#include <gmock/gmock.h>

#include <mutex>

namespace chorus {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

struct Replicated {
  RmsNorm norm{6};
  SwiGluMlp mlp{6, 7};
  Linear frozen{6, 3};
  Buffer seen{{}, {4}, 0.5};
  template <class V>
  void fields(V&& v) {
    v("norm", norm);
    v("mlp", mlp);
    v("frozen", frozen);
    v("seen", seen);
  }
};

Plan plan_of_replicated() {
  using namespace placement;
  Plan plan;
  plan.params = {{"norm.weight", {{"tp", copy}}},
                 {"frozen.*", {{"tp", same}}},
                 {"mlp.gate.weight|mlp.up.weight", {{"tp", shard(0)}}},
                 {"mlp.down.weight", {{"tp", shard(1)}}}};
  return plan;
}

/// What each of six ranks, tp 2 and dp 3, says after `change` was made to one of them.
std::vector<std::string> said_of(DType dtype, int changed, const std::function<void(Replicated&, ParamStore&)>& change) {
  std::vector<std::string> said(6);
  run_ranks(6, {}, [&](Group& world) {
    Mesh mesh(world, mesh_shape({.tp = 2}, 6));
    Context context;
    Replicated model;
    apply(plan_of_replicated(), model, mesh);
    ParamStore store = materialize(model, context, {.dtype = dtype, .seed = 3, .freeze = {{"frozen"}, {}}});
    if (world.rank() == changed) change(model, store);
    try {
      check_replicas(store, *mesh.axis("stage").group, 41);
    } catch (const Error& error) {
      said[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  return said;
}

void flip_a_bit(const Tensor& tensor, std::size_t byte = 2) { static_cast<unsigned char*>(tensor.data())[byte] ^= 0x10; }

TEST(Replicas, OneBitOnOneRankIsFoundByAll) {
  const auto of = [](int rank, auto change, DType dtype = DType::f32) { return said_of(dtype, rank, change); };
  EXPECT_THAT(of(3, [](Replicated&, ParamStore&) {}), Each(""));
  // What all hold, and what those of one coordinate of tp do.
  EXPECT_THAT(
      of(3, [](Replicated& model, ParamStore&) { flip_a_bit(model.norm.weight.value); }),
      Each(HasSubstr("after step 41 ranks that hold the same part of norm.weight hold other values of it: {0 1 2 4 5} {3}")));
  EXPECT_THAT(of(3, [](Replicated& model, ParamStore&) { flip_a_bit(model.mlp.gate_up.weight.parts[1].second.value); }),
              Each(HasSubstr("mlp.up.weight hold other values of it: {1 5} {3}. A rank")));
  EXPECT_THAT(of(4, [](Replicated& model, ParamStore&) { flip_a_bit(model.frozen.bias.value); }),
              Each(HasSubstr("frozen.bias hold other values of it: {0 1 2 3 5} {4}")));
  EXPECT_THAT(of(0, [](Replicated& model, ParamStore&) { flip_a_bit(model.seen.value, 15); }),
              Each(HasSubstr("seen hold other values of it: {0} {1 2 3 4 5}")));
  // A value that the next step would round away, in the f32 master alone.
  EXPECT_THAT(of(
                  5, [](Replicated&, ParamStore& store) { flip_a_bit(store.masters, 0); }, DType::bf16),
              Each(HasSubstr("norm.weight hold other values of it: {0 1 2 3 4} {5}")));
  EXPECT_THAT(of(1,
                 [](Replicated& model, ParamStore&) {
                   flip_a_bit(model.norm.weight.value);
                   flip_a_bit(model.mlp.down.weight.value);
                 }),
              Each(HasSubstr("{0 2 3 4 5} {1}; it is the first of 2 tensors that differ")));
}

// Two ranks share out the store, and two more have copies of their slices.
TEST(Replicas, SlicesAreComparedWhereTheyAreCopies) {
  std::vector<std::string> said(4);
  run_ranks(4, {}, [&](Group& world) {
    Mesh mesh(world, mesh_shape({.dp_replicate = 2}, 4));
    Context context;
    Replicated model;
    const ParamStore store =
        materialize(model, context, {.dtype = DType::f32, .seed = 3, .shard = store_shard(Sharding::full, mesh)});
    check_replicas(store, world, 1);
    const auto& entry = store.trainable[3];
    ASSERT_EQ(entry.path, "mlp.down.weight");
    ASSERT_EQ(entry.count > 0, world.rank() % 2 == 1) << "the second slice has it";
    if (world.rank() == 3) flip_a_bit(entry.value);
    try {
      check_replicas(store, world, 2);
    } catch (const Error& error) {
      said[static_cast<std::size_t>(world.rank())] = error.what();
    }
  });
  EXPECT_THAT(
      said,
      Each(HasSubstr("after step 2 ranks that hold the same part of mlp.down.weight hold other values of it: {1} {3}. A")));
}

}  // namespace
}  // namespace chorus
