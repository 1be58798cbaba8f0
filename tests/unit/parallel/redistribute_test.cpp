#include <chorus/parallel/group/threads.h>
#include <chorus/parallel/redistribute.h>
#include <chorus/tensor/ops/linear.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

/// Whether the weight gradient was there when the input's gradient was sent, and that gradient.
struct Sent {
  bool weight_first = false;
  std::vector<double> gradient;
};

std::vector<Sent> backward_of_linear(bool overlap) {
  constexpr int ranks = 2;
  std::vector<Sent> sent(ranks);
  std::vector<const Node*> weights(ranks, nullptr);
  ThreadOptions options;
  options.observe = [&](const Call& call, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (call.op == Op::all_reduce && weights[r]) sent[r].weight_first = weights[r]->sink.written;
  };
  run_ranks(ranks, options, [&](Group& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    Mesh mesh(world, mesh_shape({.tp = ranks}, ranks));
    if (overlap) mesh.overlap_exchanges();
    const Axis& tp = mesh.axis("tp");
    Context context;
    const double own = 1 + world.rank();
    Tensor x = placed(Tensor::of(context, {1, 2}, std::vector<double>{3, 4}), tp, placement::same);
    Tensor w = placed(Tensor::of(context, {1, 2}, std::vector<double>{own, -own}), tp, placement::shard(0), 2);
    make_leaf(x);
    make_leaf(w);
    weights[r] = w.node().get();
    backward(linear(redistribute(x, tp, placement::copy), w));
    weights[r] = nullptr;
    sent[r].gradient = x.node()->sink.grad.to_doubles();
    EXPECT_EQ(w.node()->sink.grad.to_doubles(), (std::vector<double>{3, 4}));
  });
  return sent;
}

TEST(Redistribute, OverlapBeginsBeforeWeightGradients) {
  for (const bool overlap : {false, true})
    for (const Sent& sent : backward_of_linear(overlap)) {
      EXPECT_EQ(sent.weight_first, !overlap);
      EXPECT_EQ(sent.gradient, (std::vector<double>{3, -3}));
    }
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Redistribute, NamesWhatItCantDo) {
  using ::testing::HasSubstr;
  const Mesh mesh(mesh_shape({.tp = 3}, 6), 4);
  const Axis &tp = mesh.axis("tp"), &dp = mesh.axis("dp_shard");
  Context context;
  const Tensor bare = Tensor::zeros(context, {4, 6}, DType::f64);
  EXPECT_THAT(refusal([&] { redistribute(bare, tp, placement::copy); }), HasSubstr("says nothing of how it lies along tp"));
  const Tensor x = placed(placed(bare, dp, placement::shard(1), 12), tp, placement::shard(1), 6);
  EXPECT_THAT(refusal([&] { redistribute(x, mesh.axis("cp"), placement::copy); }), HasSubstr("nothing is said of cp"));
  EXPECT_THAT(refusal([&] { redistribute(x, dp, placement::copy); }),
              HasSubstr("along dp_shard it can't become copy before the inner axis tp leaves dim 1"));
  EXPECT_THAT(refusal([&] { redistribute(placed(bare, tp, placement::same), tp, placement::shard(2)); }),
              HasSubstr("has no dim 2"));
  EXPECT_THAT(refusal([&] { moved(bare, tp, placement::shard(0), placement::copy, 5); }),
              HasSubstr("is no part 1 of 3 of 5 along tp"));
}

/// Without ranks to talk to, shapes and layouts are what they would be.
TEST(Redistribute, ImaginesShapes) {
  const Mesh mesh(mesh_shape({.tp = 3}, 3), 1);
  const Axis& tp = mesh.axis("tp");
  Context context;
  const Tensor x = placed(Tensor::zeros(context, {0, 7}, DType::f64), tp, placement::copy);
  const Tensor part = redistribute(x, tp, placement::shard(1));
  EXPECT_EQ(part.shape(), (Shape{0, 2}));
  EXPECT_EQ(redistribute(part, tp, placement::shard(0)).shape(), (Shape{0, 7}));
  EXPECT_EQ(redistribute(part, tp, placement::copy).shape(), (Shape{0, 7}));
}

}  // namespace
}  // namespace chorus
