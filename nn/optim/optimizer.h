// Optimizers over the flat buffers of a ParamStore.
#pragma once
#include <chorus/nn/materialize.h>
#include <string>

namespace chorus {

struct OptimizerConfig {
  std::string name = "adamw";        ///< or "sgd"
  double weight_decay = 1e-2;
  bool decay_matrices_only = false;  ///< no decay of tensors with fewer than two dims (norms, biases)
  double beta1 = 0.9, beta2 = 0.98, eps = 1e-8;  ///< adamw (Loshchilov and Hutter 2019)
  double momentum = 0;               ///< sgd
  bool nesterov = false;             ///< sgd
};

/// State lies in flat arrays beside the store's masters. Under bf16 values the masters are f32 and values are rewritten.
class Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const OptimizerConfig& config, const ParamStore& store);
  /// One update with the store's gradients times grad_scale.
  void step(ParamStore& store, double lr, double grad_scale = 1);
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Name and flat array [as long as the store's values] of each kind of state, for checkpoints: adamw m and v, sgd momentum.
  std::vector<std::pair<std::string, Tensor>> state() const;

 private:
  OptimizerConfig config_;
  Tensor first_, second_;
  std::int64_t steps_ = 0;
};

}  // namespace chorus
