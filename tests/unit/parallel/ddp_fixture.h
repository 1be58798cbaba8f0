// A small model with everything that data parallelism must get right, and three steps of its training on one rank or many.
#pragma once
#include <chorus/nn/layers/feed_forward.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/ddp.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/parallel/group/threads.h>
#include <chorus/tensor/ops/linear_cross_entropy.h>
#include <chorus/tensor/ops/pointwise.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradients.h"

namespace chorus::testing {

/// The table is the head, too: three uses where rows take both ways. Rows with a small id pass the branch, so not every
/// microbatch uses it. `unused` trains and has no use.
struct DdpModel {
  static constexpr std::int64_t vocabulary = 17, hidden = 6, inner = 10, branched = 5;
  Embedding embedding{vocabulary, hidden, Init::gaussian(0.7)};
  RmsNorm norm{hidden};
  SwiGluMlp mlp{hidden, inner};
  Linear branch{hidden, hidden}, frozen{hidden, hidden}, unused{hidden, 3};
  RmsNorm out{hidden};
  template <class V>
  void fields(V&& v) {
    v("embedding", embedding);
    v("norm", norm);
    v("mlp", mlp);
    v("branch", branch);
    v("frozen", frozen);
    v("unused", unused);
    v("out", out);
  }
};

struct DdpRow {
  std::int32_t id, label;
};
using DdpRows = std::vector<DdpRow>;

inline DdpRows ddp_rows() {
  DdpRows rows;
  for (int t = 0; t < 41; ++t)
    rows.push_back({t * t * 7 % 17 % (t % 3 ? 17 : 5), t % 6 == 4 ? ignored_label : (t * 5 + t * t) % 17});
  return rows;
}

inline std::int64_t labels_of(const DdpRows& rows) {
  return std::count_if(rows.begin(), rows.end(), [](const DdpRow& row) { return row.label != ignored_label; });
}

/// How rows lie on ranks and microbatches.
enum class Dealing {
  uneven,
  idle,    ///< the last rank has no rows
  sorted,  ///< the first rank has the rows without labels, the last one alone those of the branch
  patchy   ///< every rank has no rows in its last microbatch but the first rank
};

inline DdpRows dealt(const DdpRows& all, Dealing dealing, int ranks, int rank, int micros, int micro) {
  DdpRows mine;
  for (int t = 0; t < std::ssize(all); ++t) {
    const DdpRow& row = all[static_cast<std::size_t>(t)];
    int r = (t * t + 2 * t) % ranks, m = (t + t / 5) % micros;
    if (dealing == Dealing::idle && ranks > 1) r = (t * t + 2 * t) % (ranks - 1);
    if (dealing == Dealing::sorted) r = row.label == ignored_label ? 0 : row.id < DdpModel::branched ? ranks - 1 : t % ranks;
    if (dealing == Dealing::patchy && r > 0 && micros > 1) m = t % (micros - 1);
    if (r == rank && m == micro) mine.push_back(row);
  }
  return mine;
}

struct DdpOutcome {
  std::vector<double> losses, norms;
  std::vector<std::vector<double>> gradients;  // of each step
  std::vector<double> weights;
  friend bool operator==(const DdpOutcome&, const DdpOutcome&) = default;
};

struct DdpRun {
  explicit DdpRun(const OptimizerConfig& config = {}, DType dtype = DType::f64)
      : dtype(dtype),
        store(materialize(model, context, {.dtype = dtype, .seed = 5, .freeze = {{"frozen"}, {}}})),
        optimizer(config, store) {}

  Tensor states(const DdpRows& rows, bool branch) {
    std::vector<std::int32_t> ids;
    for (const auto& row : rows) ids.push_back(row.id);
    Tensor x = model.embedding(Tensor::of(context, {std::ssize(ids)}, ids));
    x = add(x, model.mlp(model.norm(x)));
    if (branch) x = add(x, model.branch(x));
    return model.out(add(x, model.frozen(x)));
  }

  /// Empty without rows.
  Tensor loss(const DdpRows& rows, double scale) {
    Tensor total;
    for (const bool branch : {false, true}) {
      DdpRows part;
      std::vector<std::int32_t> labels;
      for (const auto& row : rows)
        if ((row.id < DdpModel::branched) == branch) part.push_back(row), labels.push_back(row.label);
      if (part.empty()) continue;
      const Tensor own = linear_cross_entropy(states(part, branch), model.embedding.weight.value,
                                              Tensor::of(context, {std::ssize(labels)}, labels), {.scale = scale});
      total = total ? add(total, own) : own;
    }
    return total;
  }

  void update(DdpOutcome& outcome, double loss, Group& model_ranks) {
    outcome.losses.push_back(loss);
    outcome.gradients.push_back(gradients_of(store));
    outcome.norms.push_back(grad_norm(store, model_ranks));
    optimizer.step(store, 0.05, clip_factor(outcome.norms.back(), 0.5));
    outcome.weights = store.values.to_doubles();
  }

  DType dtype;
  Context context;
  DdpModel model;
  ParamStore store;
  Optimizer optimizer;
};

inline const OptimizerConfig ddp_adamw{.weight_decay = 0.1, .eps = 1e-3};
inline const OptimizerConfig ddp_sgd{.name = "sgd", .weight_decay = 0.1, .momentum = 0.9};

/// The oracle: all rows at once, gradients where they were without data parallelism.
inline DdpOutcome serial_steps(const OptimizerConfig& config, DType dtype = DType::f64) {
  DdpRun run(config, dtype);
  SoloGroup solo;
  DdpOutcome outcome;
  const DdpRows rows = ddp_rows();
  for (int step = 0; step < 3; ++step) {
    run.store.start_step();
    const Tensor loss = run.loss(rows, 1.0 / static_cast<double>(labels_of(rows)));
    backward(loss);
    run.store.finish_step();
    run.update(outcome, loss.item(), solo);
  }
  return outcome;
}

struct DdpCase {
  int ranks = 2, micros = 1;
  Dealing dealing = Dealing::uneven;
  DdpOptions options{};
  OptimizerConfig optimizer = ddp_adamw;
  DType dtype = DType::f64;
};

/// What one rank of the data-parallel group sees.
inline DdpOutcome ranked_steps(Group& group, const DdpCase& c) {
  DdpRun run(c.optimizer, c.dtype);
  SoloGroup solo;
  Ddp ddp(run.store, group, c.options);
  DdpOutcome outcome;
  const DdpRows all = ddp_rows();
  for (int step = 0; step < 3; ++step) {
    std::vector<DdpRows> micros;
    std::int64_t labels = 0;
    for (int m = 0; m < c.micros; ++m) {
      micros.push_back(dealt(all, c.dealing, c.ranks, group.rank(), c.micros, m));
      labels += labels_of(micros.back());
    }
    group.all_reduce(std::span(&labels, 1));
    EXPECT_EQ(labels, labels_of(all));
    double sum = 0;
    ddp.start_step();
    for (int m = 0; m < c.micros; ++m) {
      const Tensor loss = run.loss(micros[static_cast<std::size_t>(m)], 1.0 / static_cast<double>(labels));
      if (loss) sum += loss.item();
      ddp.backward(loss, m + 1 == c.micros);
    }
    ddp.finish_step();
    group.all_reduce(std::span(&sum, 1));
    run.update(outcome, sum, solo);
  }
  return outcome;
}

inline std::vector<DdpOutcome> all_ranks(const DdpCase& c, ThreadOptions options = {}) {
  std::vector<DdpOutcome> outcomes(static_cast<std::size_t>(c.ranks));
  options.threads_per_rank = 1;
  run_ranks(c.ranks, options, [&](Group& world) { outcomes[static_cast<std::size_t>(world.rank())] = ranked_steps(world, c); });
  return outcomes;
}

/// The largest difference of two lists, relative to the largest value of the second.
inline double worst(const std::vector<double>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double most = 0, largest = 0;
  for (std::size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const double off = std::abs(got[i] - want[i]);
    if (!(off <= most)) most = off;
    largest = std::max(largest, std::abs(want[i]));
  }
  return largest > 0 ? most / largest : most;
}

inline void expect_equal(const DdpOutcome& got, const DdpOutcome& want, double limit) {
  EXPECT_LE(worst(got.losses, want.losses), limit) << "loss";
  EXPECT_LE(worst(got.norms, want.norms), limit) << "norm";
  EXPECT_LE(worst(got.weights, want.weights), limit) << "weights";
  for (std::size_t s = 0; s < want.gradients.size(); ++s)
    EXPECT_LE(worst(got.gradients[s], want.gradients[s]), limit) << "gradients of step " << s;
}

}  // namespace chorus::testing
