// Activations that are made again in the backward pass: the same bits, less memory.
#include <chorus/core/rng.h>
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/ops/conv.h>
#include <chorus/tensor/ops/dropout.h>
#include <chorus/tensor/ops/linear.h>
#include <chorus/tensor/ops/norm.h>
#include <chorus/tensor/ops/pointwise.h>
#include <gmock/gmock.h>

#include <cmath>

namespace chorus {
namespace {

constexpr std::int64_t remake_rows = 37, remake_width = 24;

/// A context, leaves, and what a pass over the block below gives.
struct RemakeRun {
  explicit RemakeRun(bool remake) { context.remake = remake; }
  Tensor leaf(const Shape& shape, double phase) {
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(phase + 0.7 * static_cast<double>(i));
    Tensor x = Tensor::of(context, shape, values);
    make_leaf(x, Tensor::zeros(context, shape, DType::f64));
    leaves.push_back(x);
    return x;
  }
  std::vector<std::vector<double>> gradients() const {
    std::vector<std::vector<double>> all;
    for (const auto& x : leaves) {
      EXPECT_TRUE(x.node()->sink.written);
      all.push_back(x.node()->sink.grad.to_doubles());
    }
    return all;
  }
  Context context;
  std::vector<Tensor> leaves;
  std::size_t held = 0;  ///< bytes that the graph holds before the backward pass
};

/// Norms, gates and dropout, each before a product, one of them before two.
void run_block(RemakeRun& run, bool deferred) {
  const std::int64_t n = remake_width;
  const Tensor x = run.leaf({remake_rows, n}, 0), scale = run.leaf({n}, 1), bias = run.leaf({n}, 2);
  const Tensor gate_up = run.leaf({2 * n, n}, 3), down = run.leaf({n, n}, 4), up = run.leaf({n, n}, 5),
               out = run.leaf({n, n}, 6);
  const Rows rows = make_rows(run.context, std::vector<std::int64_t>{20, remake_rows - 20}, std::vector<std::int64_t>{4, 5});
  const std::size_t before = run.context.memory.stats().total;
  Tensor y = [&] {
    const Tensor normed = rms_norm(x, scale, 1e-6);
    const Tensor gated = linear(swiglu(linear(normed, gate_up)), down);
    const Tensor other = silu(linear(layer_norm(normed, scale, bias, 1e-5), up));
    return add(add(gated, linear(normed, up)), linear(dropout(other, rows, 0.25, random_key(7, "dropout")), out));
  }();
  run.held = run.context.memory.stats().total - before;
  DeferredGrads later;
  backward(sum(mul(y, y)), {.cotangent = {}, .deferred = deferred ? &later : nullptr});
  later.run();
}

/// What a conformer begins with: a plane of one channel, ReLU, a depthwise convolution and a product; then a norm with fixed
/// statistics before silu. Features want no gradient, but those of `leaf_features` do.
void run_plane(RemakeRun& run, bool deferred, bool leaf_features) {
  constexpr std::int64_t bins = 10, channels = 6;
  const Tensor first = run.leaf({channels, 9}, 1), first_bias = run.leaf({channels}, 2), depthwise = run.leaf({9, channels}, 3),
               depthwise_bias = run.leaf({channels}, 4), mix = run.leaf({channels, channels}, 5),
               scale = run.leaf({channels}, 6), bias = run.leaf({channels}, 7);
  Tensor features = run.leaf({remake_rows, bins}, 0);
  if (!leaf_features) features = features.detach(), run.leaves.pop_back();
  const auto statistic = [&](double value) { return Tensor::full(run.context, {channels}, DType::f64, value); };
  const auto lengths = [](std::int64_t a, std::int64_t b) { return std::vector<std::int64_t>{a, b}; };
  const Rows rows = make_rows(run.context, lengths(20, remake_rows - 20), lengths(4, 5));
  const Rows half = with_lengths(rows, lengths(10, 9)), quarter = with_lengths(half, lengths(5, 5));
  const std::size_t before = run.context.memory.stats().total;
  Tensor y = [&] {
    const Tensor plane = relu(conv2d_subsample(features, rows, half, first, first_bias, bins));
    const Tensor mixed = depthwise_conv2d_subsample(plane, half, quarter, depthwise, depthwise_bias, bins / 2);
    const Tensor normed =
        fixed_norm(linear(mixed.reshaped({10 * 3, channels}), mix), statistic(0.2), statistic(1.5), scale, bias, 1e-5);
    return linear(silu(normed), mix);
  }();
  run.held = run.context.memory.stats().total - before;
  DeferredGrads later;
  backward(sum(mul(y, y)), {.cotangent = {}, .deferred = deferred ? &later : nullptr});
  later.run();
}

TEST(Remake, GivesTheBitsOfWhatWasKept) {
  for (const bool deferred : {false, true}) {
    RemakeRun kept(false), remade(true);
    run_block(kept, deferred);
    run_block(remade, deferred);
    EXPECT_EQ(kept.gradients(), remade.gradients()) << "deferred " << deferred;
    for (const bool leaf_features : {false, true}) {
      RemakeRun kept_plane(false), remade_plane(true);
      run_plane(kept_plane, deferred, leaf_features);
      run_plane(remade_plane, deferred, leaf_features);
      EXPECT_EQ(kept_plane.gradients(), remade_plane.gradients()) << "deferred " << deferred << ", leaf " << leaf_features;
    }
  }
}

TEST(Remake, HoldsNoPlaneOfTheFirstConvolution) {
  RemakeRun kept(false), remade(true);
  run_plane(kept, false, false);
  run_plane(remade, false, false);
  // The plane behind the first convolution, what the norm gives, and silu.
  constexpr std::size_t plane = 19 * 5 * 6 * sizeof(double), small = 10 * 3 * 6 * sizeof(double);
  EXPECT_GE(kept.held, remade.held + plane + 2 * small);
}

TEST(Remake, HoldsNoOutputOfNormsGatesAndDropout) {
  RemakeRun kept(false), remade(true);
  run_block(kept, false);
  run_block(remade, false);
  // Two norms, a gate, silu and its dropout; each of rows x width, as the pool rounds them.
  const std::size_t one = remake_rows * remake_width * sizeof(double);
  EXPECT_GE(kept.held, remade.held + 5 * one);
}

TEST(Remake, ALongChainIsNotMadeAgainAsAWhole) {
  RemakeRun run(true);
  const Tensor x = run.leaf({4}, 1);
  Tensor y = x;
  for (int i = 0; i < 100'000; ++i) y = silu(y);
  int kept = 0;
  for (const Node* node = y.node().get(); !node->leaf; node = node->inputs[0].get()) kept += node->remade.empty();
  EXPECT_GE(kept, 100'000 / 6);
  backward(y);
  EXPECT_TRUE(x.node()->sink.written);
}

}  // namespace
}  // namespace chorus
