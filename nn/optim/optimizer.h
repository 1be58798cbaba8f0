// Optimizers over the flat buffers of a ParamStore.
#pragma once
#include <chorus/core/config.h>
#include <chorus/nn/materialize.h>
#include <chorus/tensor/kernels/optimizer.h>

#include <string>

namespace chorus {

struct OptimizerConfig {
  std::string name = "adamw";  ///< or "sgd"
  double weight_decay = 1e-2;
  bool decay_matrices_only = false;              ///< no decay of tensors with fewer than two dims (norms, biases)
  double beta1 = 0.9, beta2 = 0.98, eps = 1e-8;  ///< adamw (Loshchilov and Hutter 2019)
  double momentum = 0;                           ///< sgd
  bool nesterov = false;                         ///< sgd

  template <class V>
  void fields(V&& v) {
    v("name", name, "the update rule", one_of("adamw", "sgd"));
    v("weight_decay", weight_decay, "decoupled for adamw", at_least(0.0));
    v("decay_matrices_only", decay_matrices_only, "no decay of norms and biases");
    v("beta1", beta1, "adamw", between(0.0, 0.99999));
    v("beta2", beta2, "adamw", between(0.0, 0.99999));
    v("eps", eps, "adamw", greater_than(0.0));
    v("momentum", momentum, "sgd", between(0.0, 0.99999));
    v("nesterov", nesterov, "sgd");
  }
  template <class Check>
  void rules(Check&& check) const {
    check(momentum == 0 || name == "sgd", "momentum", momentum, " is for name = \"sgd\"; it is \"", name, '"');
    check(!nesterov || momentum > 0, "nesterov", "needs a momentum");
  }
};

/// Flat arrays of state beside the masters: what an update rule remembers of each parameter.
int state_arrays(const OptimizerConfig& config);

/// State lies in flat arrays beside the store's masters. Under bf16 values the masters are f32 and values are rewritten. Where
/// the store says so they lie in files; then a step goes through them window by window, and each goes to the disk after its
/// update, with the same bits for any size of windows.
class Optimizer {
 public:
  Optimizer() = default;
  /// `window`: elements of each array that are in memory at a time, of arrays that lie in files.
  Optimizer(const OptimizerConfig& config, const ParamStore& store, std::int64_t window = std::int64_t{4} << 20);
  /// One update with the store's gradients times grad_scale, after `ParamStore::finish_step`. Throws where a gradient is
  /// missing.
  void step(const ParamStore& store, double lr, double grad_scale = 1);
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Name and flat array [ParamStore::state_size] of each kind of state, for checkpoints: adamw m and v, sgd momentum.
  std::vector<std::pair<std::string, Tensor>> state() const;

 private:
  void update(const Context& context, std::span<const kernel::UpdateRange> ranges, double lr, double grad_scale);
  OptimizerConfig config_;
  Tensor first_, second_;
  std::int64_t steps_ = 0, window_ = 0;
};

}  // namespace chorus
