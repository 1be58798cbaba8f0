#pragma once
#include <chorus/nn/module.h>

namespace chorus {

struct RmsNorm {
  RmsNorm() = default;
  explicit RmsNorm(std::int64_t features, double eps = 1e-6) : weight({features}, Init::one()), eps(eps) {}
  Param weight;
  double eps = 1e-6;
  Tensor operator()(const Tensor& x) const;
  template <class V>
  void fields(V&& v) {
    v("weight", weight);
  }
};

struct LayerNorm {
  LayerNorm() = default;
  explicit LayerNorm(std::int64_t features, double eps = 1e-5)
      : weight({features}, Init::one()), bias({features}, Init::zero()), eps(eps) {}
  Param weight, bias;
  double eps = 1e-5;
  Tensor operator()(const Tensor& x) const;
  template <class V>
  void fields(V&& v) {
    v("weight", weight);
    v("bias", bias);
  }
};

/// Sums over the rows of one step, from which the next step's statistics are made. A leaf of `visit_fields`, so that the
/// trainer reaches every one of them at the end of a step (`commit_statistics`).
struct StepStatistics {
  Tensor sums;  ///< f64 [1 + 2 n]: rows; sum of (x - center) per feature; sum of its square. Empty before the step's first rows
  bool active = false;                    ///< whether the owner trains, known after `materialize`
  Tensor mean, variance;                  ///< the owner's statistics of the last step, replaced by `commit`
  Tensor running_mean, running_variance;  ///< moved towards them
  double momentum = 0.1;
  Slot<Tensor(Tensor)> sum;  ///< of `sums` over the ranks that share a step, in a tensor of its own; a plan sets it
  void add(const Tensor& x, const Tensor& center);
  /// Calls `sum` once if active, whatever rows this rank has seen: all ranks do.
  void commit();
  void discard() { sums = Tensor(); }  ///< in place of `commit`: of a step that changes nothing
};

/// Batch normalisation (Ioffe and Szegedy 2015) that never mixes the rows of a batch: `frozen` uses the running statistics;
/// `step` uses the statistics of the whole previous step as constants while training (the first step: mean 0, variance 1)
/// and moves the running ones, which evaluation uses. Frozen parameters put it into evaluation mode.
struct BatchNorm {
  enum class Mode { frozen, step };
  BatchNorm() = default;
  BatchNorm(std::int64_t features, Mode mode, double eps = 1e-5);
  Param weight, bias;
  Buffer mean, variance, step_mean, step_variance;
  mutable StepStatistics statistics;
  Mode mode = Mode::frozen;
  double eps = 1e-5;
  Tensor operator()(const Tensor& x, const Pass& pass) const;
  template <class V>
  void fields(V&& v) {
    v("weight", weight);
    v("bias", bias);
    v("mean", mean);
    v("variance", variance);
    if (mode == Mode::step) {
      v("step_mean", step_mean);
      v("step_variance", step_variance);
      reach_statistics();
      v("statistics", statistics);
    }
  }

 private:
  /// Hands `statistics` what `commit` changes: it is called also where no forward pass ran in the step.
  void reach_statistics();
};

/// At the end of a training step: every BatchNorm of `module` in step mode takes over what the step summed.
template <class M>
void commit_statistics(M& module) {
  visit_fields(module, "", []<class Leaf>(const std::string&, Leaf& leaf) {
    if constexpr (std::is_same_v<Leaf, StepStatistics>) leaf.commit();
  });
}
template <class M>
void discard_statistics(M& module) {
  visit_fields(module, "", []<class Leaf>(const std::string&, Leaf& leaf) {
    if constexpr (std::is_same_v<Leaf, StepStatistics>) leaf.discard();
  });
}

}  // namespace chorus
