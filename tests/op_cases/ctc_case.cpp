#include <chorus/tensor/ops/ctc.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "op_cases/op_case.h"
#include "op_cases/packed.h"

namespace chorus::testing {
namespace {

using Labels = std::vector<std::int32_t>;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// One sequence: log P(symbol | frame).
struct Utterance {
  std::vector<std::vector<double>> log_p;
  Labels labels;
};

Utterance utterance(const double* logits, std::int64_t frames, std::int64_t symbols, Labels labels) {
  Utterance u{{}, std::move(labels)};
  for (std::int64_t t = 0; t < frames; ++t) {
    std::vector<double> row(logits + t * symbols, logits + (t + 1) * symbols);
    double highest = -infinity, total = 0;
    for (const double v : row) highest = std::max(highest, v);
    for (const double v : row) total += std::exp(v - highest);
    for (double& v : row) v -= highest + std::log(total);
    u.log_p.push_back(row);
  }
  return u;
}

Labels collapsed(const Labels& path, std::int32_t blank) {
  Labels out;
  for (std::size_t t = 0; t < path.size(); ++t)
    if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) out.push_back(path[t]);
  return out;
}

/// -log of the summed probability of every path that says the labels, by trying all V^T paths.
double by_all_paths(const Utterance& u, std::int32_t symbols) {
  Labels path(u.log_p.size(), 0);
  double p = 0;
  for (;;) {
    if (collapsed(path, symbols - 1) == u.labels) {
      double log_path = 0;
      for (std::size_t t = 0; t < path.size(); ++t) log_path += u.log_p[t][static_cast<std::size_t>(path[t])];
      p += std::exp(log_path);
    }
    std::size_t t = 0;
    while (t < path.size() && ++path[t] == symbols) path[t++] = 0;
    if (t == path.size()) return -std::log(p);
  }
}

double log_add(double a, double b) {
  const double high = std::max(a, b);
  return high == -infinity ? high : high + std::log(std::exp(a - high) + std::exp(b - high));
}

/// The same by the recursion over states of Graves et al. (2006), in logarithms.
double by_states(const Utterance& u, std::int32_t symbols) {
  Labels states{symbols - 1};
  for (const auto label : u.labels) states.insert(states.end(), {label, symbols - 1});
  std::vector<double> now(states.size(), -infinity);
  for (std::size_t t = 0; t < u.log_p.size(); ++t) {
    const std::vector<double> before = now;
    for (std::size_t s = 0; s < states.size(); ++s) {
      double from = t == 0 ? (s < 2 ? 0.0 : -infinity) : before[s];
      if (t > 0 && s > 0) from = log_add(from, before[s - 1]);
      if (t > 0 && s > 1 && states[s] != symbols - 1 && states[s] != states[s - 2]) from = log_add(from, before[s - 2]);
      now[s] = from + u.log_p[t][static_cast<std::size_t>(states[s])];
    }
  }
  if (u.log_p.empty()) return u.labels.empty() ? 0.0 : infinity;
  return -(states.size() > 1 ? log_add(now.back(), now[now.size() - 2]) : now.back());
}

/// Labels for one sequence: half as many as frames, with repetitions; every fifth sequence can't be aligned.
Labels labels_for(std::size_t sequence, std::int64_t frames, std::int64_t symbols) {
  Labels labels;
  if (symbols < 2) return labels;
  const std::int64_t count = sequence % 5 == 4 ? frames + 1 : frames / 2;
  for (std::int64_t i = 0; i < count; ++i)
    labels.push_back(static_cast<std::int32_t>((i * i / 2 + static_cast<std::int64_t>(sequence)) % (symbols - 1)));
  return labels;
}

struct PackedLogits {
  Rows rows;
  Tensor labels, offsets;
  PackedLogits(Context& context, const std::vector<std::int64_t>& lengths, const std::vector<Labels>& each)
      : rows(rows_of(context, lengths)) {
    Labels all, ends{0};
    for (const auto& l : each) {
      all.insert(all.end(), l.begin(), l.end());
      ends.push_back(static_cast<std::int32_t>(all.size()));
    }
    labels = Tensor::of(context, {static_cast<std::int64_t>(all.size())}, all);
    offsets = Tensor::of(context, {static_cast<std::int64_t>(ends.size())}, ends);
  }
};

std::vector<Labels> labels_for_all(const std::vector<std::int64_t>& lengths, std::int64_t symbols) {
  std::vector<Labels> all;
  for (std::size_t s = 0; s < lengths.size(); ++s) all.push_back(labels_for(s, lengths[s], symbols));
  return all;
}

TEST(Ctc, Loss) {
  check({.name = "ctc_loss",
         .shapes =
             [](Size s) {
               return std::vector<Shape>{{s.rows, s.cols}};
             },
         .op =
             [](Context& context, const Tensors& x) {
               const auto lengths = awkward_lengths(x[0].size(0));
               const PackedLogits packed(context, lengths, labels_for_all(lengths, x[0].size(1)));
               return ctc_loss(x[0], packed.rows, packed.labels, packed.offsets, 0.5);
             },
         .reference =
             [](const Values& x, Size size) {
               const auto lengths = awkward_lengths(size.rows);
               const auto begins = begins_of(lengths);
               double total = 0;
               for (std::size_t s = 0; s < lengths.size(); ++s) {
                 const Labels labels = labels_for(s, lengths[s], size.cols);
                 if (ctc_frames_needed(labels) > lengths[s]) continue;
                 total += by_states(utterance(x[0].data() + begins[s] * size.cols, lengths[s], size.cols, labels),
                                    static_cast<std::int32_t>(size.cols));
               }
               return std::vector{0.5 * total};
             },
         .sizes = {{0, 17}, {1, 1}, {1, 3}, {7, 2}, {17, 3}, {46, 33}, {65, 130}},
         .terms = [](Size s) { return static_cast<double>(s.rows + 1); },
         .grad_terms = [](Size) { return 4.0; },
         .range = 4});
}

std::vector<double> values_for(std::int64_t n, std::uint64_t stream, double range) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(test_value(stream, static_cast<std::uint64_t>(i), range));
  return values;
}

TEST(Ctc, EqualsTheSumOverAllPaths) {
  const std::vector<Labels> texts = {{},        {0},       {1},       {0, 0},       {0, 1},
                                     {1, 1, 0}, {2, 0, 2}, {0, 0, 0}, {2, 2, 1, 1}, {0, 1, 2, 0, 1}};
  for (std::int64_t frames = 0; frames <= 5; ++frames)
    for (const std::int32_t symbols : {2, 3, 4})
      for (const Labels& labels : texts) {
        if (std::ranges::any_of(labels, [&](auto l) { return l >= symbols - 1; })) continue;
        Context context;
        const auto logits = values_for(frames * symbols, 3, 4);
        const Tensor x = Tensor::of(context, {frames, symbols}, logits);
        const PackedLogits packed(context, {frames}, {labels});
        const double want = by_all_paths(utterance(logits.data(), frames, symbols, labels), symbols);
        EXPECT_EQ(std::isinf(want), ctc_frames_needed(labels) > frames);
        expect_close("loss", {ctc_loss(x, packed.rows, packed.labels, packed.offsets, 1).item()},
                     {std::isinf(want) ? 0.0 : want}, 1e-13);
      }
}

std::pair<double, std::vector<double>> loss_and_gradient(const std::vector<double>& logits, std::int64_t symbols,
                                                         const std::vector<std::int64_t>& lengths,
                                                         const std::vector<Labels>& labels) {
  Context context;
  const std::int64_t rows = begins_of(lengths).back();
  Tensor x = Tensor::of(context, {rows, symbols}, logits);
  const Tensor dx = Tensor::zeros(context, x.shape(), DType::f64);
  make_leaf(x, dx);
  const PackedLogits packed(context, lengths, labels);
  const Tensor y = ctc_loss(x, packed.rows, packed.labels, packed.offsets, 1);
  backward(y);
  return {y.item(), dx.to_doubles()};
}

TEST(Ctc, OneSequenceGivesTheSameAloneAndAmongOthers) {
  const std::vector<std::int64_t> lengths = {33, 3, 0, 50, 7};
  constexpr std::int64_t symbols = 19;
  const auto labels = labels_for_all(lengths, symbols);
  const auto begins = begins_of(lengths);
  const auto logits = values_for(begins.back() * symbols, 5, 8);
  const auto [total, together] = loss_and_gradient(logits, symbols, lengths, labels);
  double sum = 0;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    const auto part = [&](const std::vector<double>& all) {
      return std::vector(all.begin() + begins[s] * symbols, all.begin() + begins[s + 1] * symbols);
    };
    const auto [loss, alone] = loss_and_gradient(part(logits), symbols, {lengths[s]}, {labels[s]});
    EXPECT_EQ(alone, part(together)) << "sequence " << s;
    sum += loss;
  }
  EXPECT_EQ(total, sum);
}

TEST(Ctc, ASequenceThatCannotBeAlignedGetsNothing) {
  const auto logits = values_for(3 * 4, 5, 8);
  for (const Labels& labels : {Labels{0, 0, 1}, Labels{0, 1, 2, 0}}) {
    const auto [loss, gradient] = loss_and_gradient(logits, 4, {3}, {labels});
    EXPECT_EQ(loss, 0.0);
    EXPECT_THAT(gradient, ::testing::Each(0.0));
  }
}

// A model that is sure of blanks: the probability of the labels is about e^-9000, far below the smallest double.
TEST(Ctc, ProbabilitiesFarBelowTheSmallestDouble) {
  constexpr std::int64_t frames = 400, symbols = 9;
  Labels labels;
  for (int i = 0; i < 150; ++i) labels.push_back(i * i % 8);
  auto logits = values_for(frames * symbols, 5, 1);
  for (std::int64_t t = 0; t < frames; ++t) logits[static_cast<std::size_t>(t * symbols + symbols - 1)] += 60;
  const double want = by_states(utterance(logits.data(), frames, symbols, labels), symbols);
  EXPECT_GT(want, 8000);
  const auto [loss, gradient] = loss_and_gradient(logits, symbols, {frames}, {labels});
  expect_close("loss", {loss}, {want}, 1e-13);
  for (const std::size_t k : {std::size_t{0}, std::size_t{8}, std::size_t{1800}, std::size_t{3599}}) {
    constexpr double h = 1e-4;
    auto up = logits, down = logits;
    up[k] += h;
    down[k] -= h;
    const double slope = (by_states(utterance(up.data(), frames, symbols, labels), symbols) -
                          by_states(utterance(down.data(), frames, symbols, labels), symbols)) /
                         (2 * h);
    EXPECT_NEAR(gradient[k], slope, 1e-6) << "logit " << k;
  }
}

TEST(Ctc, NumbersThatAreNoneShow) {
  auto logits = values_for(4 * 3, 5, 1);
  logits[4] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(loss_and_gradient(logits, 3, {4}, {{0, 1}}).first));
  logits[4] = infinity;
  EXPECT_TRUE(std::isnan(loss_and_gradient(logits, 3, {4}, {{0, 1}}).first));
  // A symbol that is ruled out everywhere: infinite loss if it is a label, else the loss without it.
  for (std::size_t t = 0; t < 4; ++t) logits[3 * t + 1] = -infinity;
  EXPECT_EQ(loss_and_gradient(logits, 3, {4}, {{0, 1}}).first, infinity);
  const auto [loss, gradient] = loss_and_gradient(logits, 3, {4}, {{0}});
  EXPECT_TRUE(std::isfinite(loss));
  for (std::size_t t = 0; t < 4; ++t) EXPECT_EQ(gradient[3 * t + 1], 0.0);
}

TEST(Ctc, RefusesWhatItCannotAlign) {
  Context context;
  const Tensor x = Tensor::zeros(context, {4, 3}, DType::f32);
  const auto run = [&](const std::vector<std::int64_t>& lengths, const std::vector<Labels>& labels) {
    const PackedLogits packed(context, lengths, labels);
    return ctc_loss(x, packed.rows, packed.labels, packed.offsets, 1);
  };
  EXPECT_NO_THROW(run({4}, {{1, 0}}));
  EXPECT_THROW(run({4}, {{2}}), Error);
  EXPECT_THROW(run({4}, {{-1}}), Error);
  EXPECT_THROW(run({3}, {{1}}), Error);
  EXPECT_THROW(run({2, 2}, {{1}}), Error);
}

Tensor logits_saying(Context& context, const Labels& frames, std::int64_t symbols) {
  std::vector<float> values;
  for (const auto f : frames)
    for (std::int32_t v = 0; v < symbols; ++v) values.push_back(v == f ? 2.0f : v % 2 ? 1.0f : -1.0f);
  return Tensor::of(context, {static_cast<std::int64_t>(frames.size()), symbols}, values);
}

TEST(Ctc, GreedyTranscripts) {
  Context context;
  constexpr std::int32_t b = 20;  // the blank, in the part of a row that fills no whole vector
  const Tensor x = logits_saying(context, {3, 3, b, 3, 19, 19, b, b, 19, 0, 0, 0}, b + 1);
  const Rows rows = rows_of(context, {6, 0, 2, 4});
  EXPECT_EQ(ctc_greedy(x, rows), (std::vector<Labels>{{3, 3, 19}, {}, {}, {19, 0}}));
  const Tensor equal = Tensor::zeros(context, {2, 5}, DType::bf16);
  EXPECT_EQ(ctc_greedy(equal, rows_of(context, {2})), (std::vector<Labels>{{0}}));
}

TEST(Ctc, Runs) {
  Context context;
  constexpr std::int32_t b = 4;
  const Tensor x = logits_saying(context, {1, 1, b, b, 1, 2, /**/ 2, 2, /**/ b, b, b, /**/ b, 0}, b + 1);
  const CtcRuns runs = ctc_runs(x, rows_of(context, {6, 2, 0, 3, 2}));
  EXPECT_THAT(runs.offsets.to_doubles(), ::testing::ElementsAre(0, 2, 4, 5, 6, 8, 11, 12, 13));
  EXPECT_THAT(runs.kept.to_doubles(), ::testing::ElementsAre(0, 2, 3, 4, 5, 7));
  EXPECT_THAT(runs.kept_per_sequence, ::testing::ElementsAre(3, 1, 0, 1, 1));
}

}  // namespace
}  // namespace chorus::testing
