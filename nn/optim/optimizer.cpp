#include <chorus/nn/optim/optimizer.h>
#include <chorus/tensor/kernels/optimizer.h>

#include <cmath>

namespace chorus {

int state_arrays(const OptimizerConfig& config) { return config.name == "adamw" ? 2 : 1; }

Optimizer::Optimizer(const OptimizerConfig& config, const ParamStore& store) : config_(config) {
  require(config.name == "adamw" || config.name == "sgd", "optimizer", "'", config.name, "'; adamw and sgd are there");
  const auto state = [&store] {
    return Tensor::zeros(store.masters.context(), store.masters.shape(), store.masters.dtype(), Category::optimizer);
  };
  first_ = state();
  if (state_arrays(config) == 2) second_ = state();
}

void Optimizer::step(ParamStore& store, double lr, double grad_scale) {
  const Cpu device = cpu(store.masters.context(), "optimizer");
  ++steps_;
  std::vector<kernel::UpdateRange> ranges;
  ranges.reserve(store.trainable.size());
  for (const auto& entry : store.trainable) {
    const bool decays = !config_.decay_matrices_only || entry.param->global.rank() >= 2;
    const Tensor grad = entry.param->grad();
    require(grad && grad.dtype() == store.masters.dtype(), "optimizer", "the gradient of ", entry.path, " is ", grad,
            ": a step is finished first");
    ranges.push_back({entry.first, entry.count, decays ? config_.weight_decay : 0, grad.data()});
  }
  if (config_.name == "adamw") {
    const auto t = static_cast<double>(steps_);
    kernel::adamw_step(device,
                       {.lr = lr,
                        .beta1 = config_.beta1,
                        .beta2 = config_.beta2,
                        .eps = config_.eps,
                        .correction1 = 1 - std::pow(config_.beta1, t),
                        .correction2 = 1 - std::pow(config_.beta2, t),
                        .grad_scale = grad_scale},
                       ranges, first_, second_, store.masters, store.values);
  } else {
    kernel::sgd_step(device,
                     {.lr = lr,
                      .momentum = config_.momentum,
                      .grad_scale = grad_scale,
                      .nesterov = config_.nesterov,
                      .first_step = steps_ == 1},
                     ranges, first_, store.masters, store.values);
  }
}

std::vector<std::pair<std::string, Tensor>> Optimizer::state() const {
  if (config_.name == "adamw") return {{"exp_avg", first_}, {"exp_avg_sq", second_}};
  return {{"momentum", first_}};
}

}  // namespace chorus
