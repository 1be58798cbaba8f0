#include <chorus/nn/layers/linear.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/nn/optim/schedule.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradients.h"

namespace chorus {
namespace {

using testing::fill_gradients;

/// One scalar of PyTorch's AdamW, written out.
struct ReferenceAdamW {
  double m = 0, v = 0;
  int t = 0;
  double step(double w, double g, double lr, double decay, const OptimizerConfig& c) {
    ++t;
    w -= lr * decay * w;
    m = c.beta1 * m + (1 - c.beta1) * g;
    v = c.beta2 * v + (1 - c.beta2) * g * g;
    const double mean = m / (1 - std::pow(c.beta1, t)), square = v / (1 - std::pow(c.beta2, t));
    return w - lr * mean / (std::sqrt(square) + c.eps);
  }
};

void fill_gradient(const ParamStore& store, int step) {
  fill_gradients(store, 0);
  for (const auto& entry : store.trainable)
    for (std::int64_t i = 0; i < entry.count; ++i)
      entry.param->grad().as<double>()[i] = std::sin(0.1 * static_cast<double>(entry.first + i) + step) * 0.3;
}

TEST(AdamW, EqualsTheReferenceAndDecaysMatricesOnlyIfAsked) {
  for (const bool matrices_only : {false, true}) {
    Context context;
    Linear layer(7, 5);
    ParamStore store = materialize(layer, context, {.dtype = DType::f64, .seed = 3, .freeze = {}});
    const OptimizerConfig config{.weight_decay = 0.1, .decay_matrices_only = matrices_only};
    Optimizer optimizer(config, store);
    auto expected = layer.weight.value.to_doubles();
    auto expected_bias = layer.bias.value.to_doubles();
    std::vector<ReferenceAdamW> references(expected.size()), bias_references(expected_bias.size());
    for (int step = 0; step < 5; ++step) {
      fill_gradient(store, step);
      const auto g = layer.weight.grad().to_doubles(), bg = layer.bias.grad().to_doubles();
      const double lr = 0.01 * (step + 1), clip = 0.5;
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] = references[i].step(expected[i], clip * g[i], lr, 0.1, config);
      for (std::size_t i = 0; i < expected_bias.size(); ++i)
        expected_bias[i] = bias_references[i].step(expected_bias[i], clip * bg[i], lr, matrices_only ? 0 : 0.1, config);
      optimizer.step(store, lr, clip);
    }
    const auto weight = layer.weight.value.to_doubles(), bias = layer.bias.value.to_doubles();
    for (std::size_t i = 0; i < weight.size(); ++i) EXPECT_NEAR(weight[i], expected[i], 1e-14);
    for (std::size_t i = 0; i < bias.size(); ++i) EXPECT_NEAR(bias[i], expected_bias[i], 1e-14);
  }
}

TEST(AdamW, Bf16ValuesFollowTheirMasters) {
  Context context;
  Linear layer(70, 50);
  ParamStore store = materialize(layer, context, {.dtype = DType::bf16, .seed = 3, .freeze = {}});
  Optimizer optimizer({}, store);
  // Steps far below half a bf16 unit: without masters they would all be lost.
  const auto before = store.masters.to_doubles();
  for (int step = 0; step < 20; ++step) {
    fill_gradients(store, 1);
    optimizer.step(store, 1e-5);
  }
  const auto masters = store.masters.to_doubles(), values = store.values.to_doubles();
  for (std::size_t i = 0; i < 3500; ++i) {
    EXPECT_NEAR(masters[i], before[i] - 2e-4, 2e-5);
    EXPECT_EQ(values[i], static_cast<double>(bf16(masters[i])));
  }
}

TEST(Sgd, EqualsTheReference) {
  for (const bool nesterov : {false, true}) {
    Context context;
    Linear layer(3, 2);
    ParamStore store = materialize(layer, context, {.dtype = DType::f64, .seed = 3, .freeze = {}});
    Optimizer optimizer({.name = "sgd", .weight_decay = 0.1, .momentum = 0.9, .nesterov = nesterov}, store);
    auto expected = layer.weight.value.to_doubles();
    std::vector<double> buffer(expected.size());
    for (int step = 0; step < 4; ++step) {
      fill_gradient(store, step);
      const auto gradient = layer.weight.grad().to_doubles();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double g = gradient[i] + 0.1 * expected[i];
        buffer[i] = step == 0 ? g : 0.9 * buffer[i] + g;
        expected[i] -= 0.05 * (nesterov ? g + 0.9 * buffer[i] : buffer[i]);
      }
      optimizer.step(store, 0.05);
    }
    const auto weight = layer.weight.value.to_doubles();
    for (std::size_t i = 0; i < weight.size(); ++i) EXPECT_NEAR(weight[i], expected[i], 1e-14);
  }
}

TEST(Optimizer, UnknownNameIsAnError) {
  Context context;
  Linear layer(3, 2);
  const ParamStore store = materialize(layer, context, {});
  EXPECT_THROW(Optimizer({.name = "adam"}, store), Error);
}

TEST(Schedule, WarmsUpThenFollowsItsForm) {
  const ScheduleConfig cosine{.name = "cosine", .lr = 1, .min_lr = 0.1, .warmup_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 0, 110), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 9, 110), 1);
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 10, 110), 1);
  EXPECT_NEAR(learning_rate(cosine, 60, 110), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(cosine, 110, 110), 0.1, 1e-12);
  const ScheduleConfig linear{.name = "linear", .lr = 1, .min_lr = 0, .warmup_steps = 0};
  EXPECT_NEAR(learning_rate(linear, 25, 100), 0.75, 1e-12);
  const ScheduleConfig constant{.name = "constant", .lr = 0.5};
  EXPECT_DOUBLE_EQ(learning_rate(constant, 1000, 10), 0.5);
  const ScheduleConfig root{.name = "inverse_sqrt", .lr = 1, .warmup_steps = 4};
  EXPECT_NEAR(learning_rate(root, 15, 100), 0.5, 1e-12);
  const ScheduleConfig wsd{.name = "wsd", .lr = 1, .min_lr = 0, .warmup_steps = 10, .decay_steps = 20};
  EXPECT_DOUBLE_EQ(learning_rate(wsd, 79, 100), 1);
  EXPECT_NEAR(learning_rate(wsd, 90, 100), 0.5, 1e-12);
  EXPECT_THROW(learning_rate({.name = "cosin"}, 0, 1), Error);
}

}  // namespace
}  // namespace chorus
