// Batch norm in step mode against its definition in plain loops.
#include <chorus/core/rng.h>
#include <chorus/nn/layers/norm.h>
#include <chorus/nn/materialize.h>
#include <op_cases/op_case.h>

#include <cmath>
#include <numeric>

#include "gradients.h"

namespace chorus::testing {
namespace {

constexpr std::int64_t features = 5;
constexpr double eps = 1e-5;
const Pass train{.training = true};

/// Rows of the microbatch `part` of step `step`: features differ in mean and deviation.
std::vector<double> rows_of(std::uint64_t step, std::uint64_t part, std::int64_t rows) {
  std::vector<double> values(static_cast<std::size_t>(rows * features));
  fill_normal(random_key(step, part, std::uint64_t{1}), 0, std::span<double>(values), 0.0, 1.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto c = static_cast<double>(i % features);
    values[i] = (c - 2) * 3 + values[i] * (0.3 + c);
  }
  return values;
}

struct Statistics {
  std::vector<double> mean, variance;
};
Statistics statistics_of(const std::vector<double>& x) {
  Statistics s{std::vector<double>(features, 0), std::vector<double>(features, 0)};
  const double n = static_cast<double>(x.size()) / features;
  for (std::size_t i = 0; i < x.size(); ++i) s.mean[i % features] += x[i] / n;
  for (std::size_t i = 0; i < x.size(); ++i) s.variance[i % features] += std::pow(x[i] - s.mean[i % features], 2) / n;
  return s;
}

std::vector<double> normalised(const std::vector<double>& x, const Statistics& s, const BatchNorm& norm) {
  const auto weight = norm.weight.value.to_doubles(), bias = norm.bias.value.to_doubles();
  std::vector<double> y;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % features;
    y.push_back((x[i] - s.mean[c]) / std::sqrt(s.variance[c] + eps) * weight[c] + bias[c]);
  }
  return y;
}

struct Normalised {
  Context context;
  BatchNorm norm;
  ParamStore store;
  explicit Normalised(BatchNorm::Mode mode, const FreezeRules& freeze = {}) : norm(features, mode, eps) {
    store = materialize(norm, context, {.dtype = DType::f64, .seed = 1, .freeze = freeze});
    for (std::int64_t c = 0; c < features; ++c) {
      norm.weight.value.as<double>()[c] = 0.5 + 0.25 * static_cast<double>(c);
      norm.bias.value.as<double>()[c] = 1 - static_cast<double>(c);
    }
  }
  Tensor input(const std::vector<double>& x) {
    return Tensor::of(context, {static_cast<std::int64_t>(x.size()) / features, features}, x);
  }
  std::vector<double> run(const std::vector<double>& x, const Pass& pass) { return norm(input(x), pass).to_doubles(); }
};

TEST(BatchNormStep, UsesTheLastStepAsConstantsAndMovesTheRunningStatistics) {
  Normalised built(BatchNorm::Mode::step);
  Statistics last{std::vector<double>(features, 0), std::vector<double>(features, 1)}, running = last;
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto x = rows_of(step, 0, 40);
    expect_close("training, step " + std::to_string(step), built.run(x, train), normalised(x, last, built.norm), 1e-12);
    // Statistics change with commit only: a second microbatch of the step sees the same constants.
    const auto y = rows_of(step, 1, 3);
    expect_close("second microbatch, step " + std::to_string(step), built.run(y, train), normalised(y, last, built.norm),
                 1e-12);
    commit_statistics(built.norm);
    auto all = x;
    all.insert(all.end(), y.begin(), y.end());
    last = statistics_of(all);
    for (std::size_t c = 0; c < features; ++c) {
      running.mean[c] = 0.9 * running.mean[c] + 0.1 * last.mean[c];
      running.variance[c] = 0.9 * running.variance[c] + 0.1 * last.variance[c];
    }
    expect_close("mean of the step", built.norm.step_mean.value.to_doubles(), last.mean, 1e-12);
    expect_close("variance of the step", built.norm.step_variance.value.to_doubles(), last.variance, 1e-12);
    expect_close("running mean", built.norm.mean.value.to_doubles(), running.mean, 1e-12);
    expect_close("running variance", built.norm.variance.value.to_doubles(), running.variance, 1e-12);
    expect_close("evaluation", built.run(x, {}), normalised(x, running, built.norm), 1e-12);
  }
}

TEST(BatchNormStep, EvaluationAndStepsWithoutRowsLeaveStatisticsAlone) {
  Normalised built(BatchNorm::Mode::step);
  built.run(rows_of(0, 0, 30), train);
  commit_statistics(built.norm);
  const auto mean = built.norm.mean.value.to_doubles(), variance = built.norm.step_variance.value.to_doubles();
  built.run(rows_of(1, 0, 30), {});
  commit_statistics(built.norm);
  built.run({}, train);
  commit_statistics(built.norm);
  EXPECT_EQ(built.norm.mean.value.to_doubles(), mean);
  EXPECT_EQ(built.norm.step_variance.value.to_doubles(), variance);
}

TEST(BatchNormStep, RegroupingAStepLeavesStatisticsAndGradients) {
  std::vector<std::vector<double>> samples;
  for (std::uint64_t s = 0; s < 6; ++s) samples.push_back(rows_of(7, s, static_cast<std::int64_t>(3 + 5 * s)));
  struct Result {
    std::vector<double> grads, mean, variance, running_mean, running_variance;
  };
  using Groups = std::vector<std::vector<std::size_t>>;
  const auto run = [&](const Groups& groups) {
    Normalised built(BatchNorm::Mode::step);
    Result result;
    for (int step = 0; step < 2; ++step) {  // the second step uses what the first one summed
      built.store.start_step();
      for (const auto& group : groups) {
        std::vector<double> x, cotangent;
        for (const std::size_t s : group) {
          x.insert(x.end(), samples[s].begin(), samples[s].end());
          for (std::size_t i = 0; i < samples[s].size(); ++i) cotangent.push_back(std::sin(static_cast<double>(i + 31 * s)));
        }
        const Tensor y = built.norm(built.input(x), train);
        backward(y, {.cotangent = built.input(cotangent)});
      }
      built.store.finish_step();
      commit_statistics(built.norm);
    }
    return Result{testing::gradients_of(built.store), built.norm.step_mean.value.to_doubles(),
                  built.norm.step_variance.value.to_doubles(), built.norm.mean.value.to_doubles(),
                  built.norm.variance.value.to_doubles()};
  };
  const Result whole = run({{0, 1, 2, 3, 4, 5}});
  for (const auto& groups : {Groups{{3, 1}, {5, 0, 2, 4}}, Groups{{0}, {1}, {}, {2}, {3}, {4}, {5}}}) {
    const Result parts = run(groups);
    expect_close("gradients", parts.grads, whole.grads, 1e-12);
    expect_close("mean", parts.mean, whole.mean, 1e-12);
    expect_close("variance", parts.variance, whole.variance, 1e-12);
    expect_close("running mean", parts.running_mean, whole.running_mean, 1e-12);
    expect_close("running variance", parts.running_variance, whole.running_variance, 1e-12);
  }
}

struct HeardAll {};

/// What a plan does: every rank gets the sum over all of them. They run one after another here, so that each commits twice: the
/// first time to tell what it has, and then with the sum.
void commit_together(std::span<Normalised* const> ranks) {
  std::vector<double> total;
  int calls = 0;
  for (Normalised* rank : ranks) {
    rank->norm.statistics.sum.replaced = [&](const Tensor& mine) -> Tensor {
      const auto own = mine.to_doubles();
      total.resize(own.size());
      for (std::size_t i = 0; i < own.size(); ++i) total[i] += own[i];
      ++calls;
      throw HeardAll();
    };
    EXPECT_THROW(commit_statistics(rank->norm), HeardAll);
  }
  for (Normalised* rank : ranks) {
    rank->norm.statistics.sum.replaced = [&](const Tensor& mine) {
      ++calls;
      return Tensor::of(mine.context(), mine.shape(), total);
    };
    commit_statistics(rank->norm);
  }
  EXPECT_EQ(calls, 2 * static_cast<int>(ranks.size())) << "one sum for each rank and step";
}

TEST(BatchNormStep, EveryRankGetsTheStatisticsOfAllRows) {
  Normalised serial(BatchNorm::Mode::step), a(BatchNorm::Mode::step), b(BatchNorm::Mode::step), c(BatchNorm::Mode::step);
  std::vector<Normalised*> ranks{&a, &b, &c};
  for (std::uint64_t step = 0; step < 4; ++step) {
    for (std::uint64_t r = 0; r < 3; ++r) {
      // In the first step a rank sees no row at all and runs nothing, in the second it runs without rows; in the third all do.
      if ((step + r) % 3 == 1 || step == 2) {
        if (step == 1) ranks[r]->run({}, train);
        continue;
      }
      const auto x = rows_of(step, r, static_cast<std::int64_t>(7 + 13 * r));
      serial.run(x, train);
      ranks[r]->run(x, train);
    }
    commit_together(ranks);
    commit_statistics(serial.norm);
    const auto all_of = [](const BatchNorm& norm) {
      std::vector<double> values;
      for (const Buffer* buffer : {&norm.step_mean, &norm.step_variance, &norm.mean, &norm.variance}) {
        const auto own = buffer->value.to_doubles();
        values.insert(values.end(), own.begin(), own.end());
      }
      return values;
    };
    for (Normalised* rank : ranks) {
      expect_close("statistics after step " + std::to_string(step), all_of(rank->norm), all_of(serial.norm), 1e-14);
      EXPECT_EQ(all_of(rank->norm), all_of(a.norm)) << "ranks differ";
      EXPECT_FALSE(rank->norm.statistics.sums);
    }
  }
}

/// dy/dx of a norm with constant statistics is weight / sqrt(variance + eps), row by row.
TEST(BatchNormStep, StatisticsHaveNoGradient) {
  Normalised built(BatchNorm::Mode::step);
  built.run(rows_of(0, 0, 50), train);
  commit_statistics(built.norm);
  const auto x = rows_of(1, 0, 9);
  Tensor input = built.input(x);
  make_leaf(input, Tensor::zeros(built.context, input.shape(), DType::f64));
  built.store.start_step();
  const auto weight = built.norm.weight.value.to_doubles(), variance = built.norm.step_variance.value.to_doubles();
  backward(built.norm(input, train));
  std::vector<double> want;
  for (std::size_t i = 0; i < x.size(); ++i) want.push_back(weight[i % features] / std::sqrt(variance[i % features] + eps));
  expect_close("gradient of the input", input.node()->sink.grad.to_doubles(), want, 1e-12);
}

TEST(BatchNormStep, FrozenParametersMeanEvaluationMode) {
  Normalised built(BatchNorm::Mode::step, {{"weight", "bias"}, {}});
  for (std::int64_t c = 0; c < features; ++c) {
    built.norm.mean.value.as<double>()[c] = 0.3 * static_cast<double>(c);
    built.norm.variance.value.as<double>()[c] = 2 + static_cast<double>(c);
  }
  const Statistics running{built.norm.mean.value.to_doubles(), built.norm.variance.value.to_doubles()};
  const auto x = rows_of(0, 0, 30);
  expect_close("training", built.run(x, train), normalised(x, running, built.norm), 1e-12);
  built.norm.statistics.sum.replaced = [](const Tensor&) -> Tensor { throw HeardAll(); };
  EXPECT_NO_THROW(commit_statistics(built.norm)) << "what isn't trained needs no sum";
  EXPECT_EQ(built.norm.mean.value.to_doubles(), running.mean);
  EXPECT_EQ(built.norm.step_mean.value.to_doubles(), std::vector<double>(features, 0));
}

TEST(BatchNormFrozen, UsesRunningStatisticsInTrainingToo) {
  Normalised built(BatchNorm::Mode::frozen);
  for (std::int64_t c = 0; c < features; ++c) built.norm.mean.value.as<double>()[c] = 0.3 * static_cast<double>(c);
  const Statistics running{built.norm.mean.value.to_doubles(), std::vector<double>(features, 1)};
  const auto x = rows_of(0, 0, 30);
  expect_close("training", built.run(x, train), normalised(x, running, built.norm), 1e-12);
  commit_statistics(built.norm);
  EXPECT_EQ(built.norm.mean.value.to_doubles(), running.mean);
  std::vector<std::string> buffers;
  for_each_buffer(built.norm, [&](const std::string& path, Buffer&) { buffers.push_back(path); });
  EXPECT_EQ(buffers, (std::vector<std::string>{"mean", "variance"}));
}

}  // namespace
}  // namespace chorus::testing
