#include <chorus/core/rng.h>
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/ops/linear.h>
#include <chorus/tensor/ops/pointwise.h>
#include <gmock/gmock.h>

#include <cmath>

namespace chorus {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A leaf with an empty sink (holding rubbish that the first gradient must replace).
Tensor leaf(Context& context, const Shape& shape, const std::vector<double>& values) {
  Tensor x = Tensor::of(context, shape, values);
  make_leaf(x, Tensor::full(context, shape, DType::f64, -999));
  return x;
}
Tensor leaf(Context& context, const std::vector<double>& values) {
  return leaf(context, {static_cast<std::int64_t>(values.size())}, values);
}
std::vector<double> grad(const Tensor& x) {
  EXPECT_TRUE(x.node()->sink.written);
  return x.node()->sink.grad.to_doubles();
}

TEST(Autograd, DiamondAddsBothPaths) {
  Context context;
  const Tensor z = leaf(context, {2, 3});
  const Tensor k = scale(z, 2);
  backward(add(scale(k, 5), mul(k, k)));  // 10 z + 4 z^2
  EXPECT_THAT(grad(z), ElementsAre(10 + 8 * 2, 10 + 8 * 3));
}

TEST(Autograd, AnInputUsedTwiceGetsBothGradients) {
  Context context;
  const Tensor x = leaf(context, {3, -1});
  backward(mul(x, x));
  EXPECT_THAT(grad(x), ElementsAre(6, -2));
  const Tensor z = leaf(context, {3, -1});
  backward(add(z, z));
  EXPECT_THAT(grad(z), ElementsAre(2, 2));
}

TEST(Autograd, LeavesKeepSummingOverPasses) {
  Context context;
  const Tensor x = leaf(context, {3});
  backward(scale(x, 2));
  backward(scale(x, 5));
  EXPECT_THAT(grad(x), ElementsAre(7));
}

// `add` hands one gradient tensor to both inputs. Adding a second gradient to one of them must not change the other's.
TEST(Autograd, SharedGradientsAreNotAddedToInPlace) {
  Context context;
  for (const bool sum_first : {true, false}) {
    const Tensor x = leaf(context, {1, 2}), z = leaf(context, {1, 2});
    const Tensor a = scale(x, 1), b = scale(z, 1);
    Tensor sum, square;
    if (sum_first) sum = add(a, b);
    square = mul(a, a);
    if (!sum_first) sum = add(a, b);
    const Tensor dy = Tensor::full(context, {2}, DType::f64, 1);
    backward(add(sum, square), {.cotangent = dy});  // x + z + x^2
    EXPECT_THAT(grad(x), ElementsAre(3, 5)) << "sum first: " << sum_first;
    EXPECT_THAT(grad(z), ElementsAre(1, 1)) << "sum first: " << sum_first;
    EXPECT_THAT(dy.to_doubles(), Each(1)) << "the caller's cotangent";
  }
}

TEST(Autograd, LongChainsAreFreedAndWalkedWithoutRecursion) {
  for (const bool walk : {true, false}) {
    Context context;
    const Tensor x = leaf(context, {1});
    Tensor y = x;
    for (int i = 0; i < 100000; ++i) y = scale(y, 1);
    if (walk) {
      backward(y);
      EXPECT_THAT(grad(x), ElementsAre(1));
    }
    y = Tensor();
    EXPECT_LE(context.memory.stats().total, 256u) << "the leaf and its gradient remain";
  }
}

TEST(Autograd, DeferredWeightGradientsAreTheImmediateOnes) {
  Context context;
  const auto values = [](std::uint64_t stream, std::int64_t n) {
    std::vector<double> v;
    for (std::int64_t i = 0; i < n; ++i)
      v.push_back(static_cast<double>(philox(RandomKey{stream}, {static_cast<std::uint32_t>(i), 0, 0, 0})[0]) / 0x1p32 - 0.5);
    return v;
  };
  std::vector<std::vector<double>> results;
  for (const bool later : {false, true}) {
    const Tensor x = leaf(context, {5, 4}, values(1, 20)), w = leaf(context, {4, 4}, values(2, 16)),
                 bias = leaf(context, values(3, 4));
    DeferredGrads queue;
    // The weight is used twice: its two gradients are summed in the same order.
    backward(linear(silu(linear(x, w, bias)), w), {.cotangent = {}, .deferred = later ? &queue : nullptr});
    EXPECT_EQ(queue.size(), later ? 2u : 0u);
    EXPECT_EQ(w.node()->sink.written, !later);
    const auto dx = grad(x);
    queue.run();
    EXPECT_EQ(queue.size(), 0u);
    for (const auto& g : {dx, grad(w), grad(bias)}) results.push_back(g);
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i], results[i + 3]) << "gradient " << i;
}

TEST(Autograd, AGraphIsWalkedOnce) {
  Context context;
  const Tensor x = leaf(context, {1}), y = silu(scale(x, 2));
  backward(y);
  try {
    backward(y);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("silu: the graph was walked already"));
  }
}

TEST(Autograd, NothingIsRecordedWithoutNeed) {
  Context context;
  const Tensor x = leaf(context, {1}), constant = Tensor::full(context, {1}, DType::f64, 2);
  EXPECT_FALSE(silu(constant).requires_grad());
  EXPECT_FALSE(silu(x.detach()).requires_grad());
  {
    const NoGrad quiet(context);
    EXPECT_FALSE(wants_grad({x}));
    EXPECT_FALSE(silu(x).requires_grad());
    const NoGrad nested(context);
  }
  EXPECT_TRUE(wants_grad({x}));
  EXPECT_TRUE(silu(x).requires_grad());
  EXPECT_THROW(backward(silu(constant)), Error);
}

TEST(Autograd, ConstantsGetNoGradient) {
  Context context;
  const Tensor x = leaf(context, {3}), constant = Tensor::full(context, {1}, DType::f64, 2);
  const Tensor y = mul(constant, x);
  EXPECT_EQ(y.node()->inputs[0], nullptr);
  backward(y);
  EXPECT_THAT(grad(x), ElementsAre(2));
}

TEST(Autograd, CotangentsAreChecked) {
  Context context;
  const Tensor y = scale(leaf(context, {1, 2}), 2);
  EXPECT_THROW(backward(y, {.cotangent = Tensor::full(context, {3}, DType::f64, 1)}), Error);
  EXPECT_THROW(backward(y, {.cotangent = Tensor::full(context, {2}, DType::f32, 1)}), Error);
}

TEST(Autograd, SavedTensorsAreFreedDuringBackward) {
  Context context;
  context.remake = false;
  constexpr std::size_t bytes = 8 * 4096;
  const Tensor x = leaf(context, std::vector<double>(4096, 0.5));
  Tensor y = x;
  for (int i = 0; i < 20; ++i) y = silu(y);
  const std::size_t full = context.memory.stats().total;
  EXPECT_GE(full, 22 * bytes) << "the graph holds every input";
  context.memory.reset_peak();
  backward(y);
  EXPECT_LE(context.memory.stats().peak_total, full + 2 * bytes + 1024) << "one gradient coming in, one going out";
  EXPECT_LE(context.memory.stats().total, 3 * bytes + 1024) << "value, gradient and y remain";
}

TEST(Autograd, SavedTensorsDoNotHoldTheGraph) {
  Context context;
  const Tensor x = leaf(context, {1}), y = silu(silu(x));
  for (const Tensor& saved : y.node()->saved) EXPECT_FALSE(saved.requires_grad());
}

// Random graphs of shared nodes against central differences.
TEST(Autograd, RandomGraphsHaveTheGradientOfTheirValue) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const auto pick = [seed](std::uint32_t step, std::uint32_t which, std::size_t n) {
      return philox(RandomKey{seed}, {step, which, 0, 0})[0] % n;
    };
    const auto graph = [&](const std::vector<Tensor>& inputs) {
      std::vector<Tensor> nodes = inputs;
      for (std::uint32_t step = 0; step < 25; ++step) {
        const Tensor a = nodes[pick(step, 1, nodes.size())], b = nodes[pick(step, 2, nodes.size())];
        switch (pick(step, 0, 4)) {
          case 0: nodes.push_back(add(a, b)); break;
          case 1: nodes.push_back(silu(mul(a, b))); break;
          case 2: nodes.push_back(scale(a, 0.5)); break;
          default: nodes.push_back(add_scaled(a, b, -0.5)); break;
        }
        nodes.back() = scale(nodes.back(), 0.5);
      }
      Tensor y = nodes[0];
      for (std::size_t i = 1; i < nodes.size(); ++i) y = add(y, nodes[i]);
      return sum(y);
    };
    Context context;
    std::vector<double> point{0.3, -0.7, 1.1};
    std::vector<Tensor> inputs;
    for (const double v : point) inputs.push_back(leaf(context, std::vector<double>{v}));
    backward(graph(inputs));
    const auto value = [&](const std::vector<double>& at) {
      Context quiet;
      std::vector<Tensor> x;
      for (const double v : at) x.push_back(Tensor::full(quiet, {1}, DType::f64, v));
      return graph(x).item();
    };
    for (std::size_t i = 0; i < point.size(); ++i) {
      auto up = point, down = point;
      up[i] += 1e-5;
      down[i] -= 1e-5;
      const double want = (value(up) - value(down)) / 2e-5, got = grad(inputs[i])[0];
      EXPECT_NEAR(got, want, 1e-7 * std::max(1.0, std::abs(want))) << "seed " << seed << " input " << i;
    }
  }
}

TEST(Autograd, GradientsOfReshapedHandlesGetTheOutputsShape) {
  Context context;
  Tensor x = Tensor::of(context, {2, 6}, std::vector<double>(12, 1.0));
  make_leaf(x, Tensor::zeros(context, {2, 6}, DType::f64));
  const Tensor y = scale(x, 2);  // (2, 6)
  const Tensor z = add(y, scale(y.reshaped({3, 4}), 3).reshaped({2, 6}));
  backward(sum(z.reshaped({12})));
  EXPECT_EQ(x.node()->sink.grad.to_doubles(), std::vector<double>(12, 8.0));
}

TEST(Autograd, TellsAfterEveryOpWhichInputsItHad) {
  Context context;
  Tensor x = Tensor::full(context, {2, 3}, DType::f64, 0.5), w = Tensor::full(context, {4, 3}, DType::f64, 0.25);
  make_leaf(x), make_leaf(w);
  const Tensor y = sum(silu(linear(x, w)));
  std::vector<std::string> ops;
  for (const bool later : {false, true}) {
    DeferredGrads deferred;
    bool seen = false;
    ops.clear();
    backward(later ? sum(silu(linear(x, w))) : y, {.deferred = later ? &deferred : nullptr, .after = [&](const Node& node) {
                                                     ops.push_back(node.op);
                                                     for (const auto& input : node.inputs) seen = seen || input == w.node();
                                                   }});
    EXPECT_EQ(ops, (std::vector<std::string>{"sum", "silu", "linear"}));
    EXPECT_TRUE(seen);
    deferred.run();
  }
}

TEST(Autograd, ALeafTakesMemoryForItsGradientWhenItComes) {
  Context context;
  Tensor x = Tensor::full(context, {5, 3}, DType::bf16, 2);
  make_leaf(x);
  EXPECT_FALSE(x.node()->sink.grad);
  backward(sum(scale(x, 3)));
  EXPECT_EQ(x.node()->sink.grad.dtype(), DType::f32);
  EXPECT_EQ(x.node()->sink.grad.shape(), (Shape{5, 3}));
  EXPECT_EQ(x.node()->sink.grad.to_doubles(), std::vector<double>(15, 3));
}

}  // namespace
}  // namespace chorus
