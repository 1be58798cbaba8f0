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
  std::string exp_avg_dtype = "fp32", exp_avg_sq_dtype = "fp32";  ///< adamw; nothing else is there yet

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
    const auto moments = one_of("fp32", "bf16", "fp16", "fp8");
    v("exp_avg_dtype", exp_avg_dtype, "of the first moment; only fp32 is there (fp64 in a model of fp64)", moments);
    v("exp_avg_sq_dtype", exp_avg_sq_dtype, "of the second moment; only fp32 is there (fp64 in a model of fp64)", moments);
  }
  template <class Check>
  void rules(Check&& check) const {
    check(momentum == 0 || name == "sgd", "momentum", momentum, " is for name = \"sgd\"; it is \"", name, '"');
    check(!nesterov || momentum > 0, "nesterov", "needs a momentum");
    const auto moment = [&](const char* key, const std::string& type) {
      check(type == "fp32", key, '"', type, "\": moments of fewer bits aren't there; they are fp32");
    };
    moment("exp_avg_dtype", exp_avg_dtype);
    moment("exp_avg_sq_dtype", exp_avg_sq_dtype);
  }
};

/// Flat arrays of state beside the masters: what an update rule remembers of each parameter.
int state_arrays(const OptimizerConfig& config);

/// State lies in flat arrays of the store's wide type. Where bf16 values have f32 masters, these are updated and the values are
/// rewritten; where they have none, each update is rounded to bf16. Where the store says so, state and masters lie in files;
/// then a step goes through them window by window, and each goes to the disk after its update, with the same bits for any size
/// of windows.
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
