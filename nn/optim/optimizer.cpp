#include <chorus/nn/optim/optimizer.h>
#include <chorus/tensor/kernels/optimizer.h>

#include <cmath>

namespace chorus {

int state_arrays(const OptimizerConfig& config) { return config.name == "adamw" ? 2 : 1; }

Optimizer::Optimizer(const OptimizerConfig& config, const ParamStore& store) : config_(config) {
  require(config.name == "adamw" || config.name == "sgd", "optimizer", "'", config.name, "'; adamw and sgd are there");
  const DType dtype = store.trainable.empty() ? DType::f32 : store.trainable.front().master.dtype();
  const auto state = [&] { return Tensor::zeros(*store.context, {store.state_size}, dtype, Category::optimizer); };
  first_ = state();
  if (state_arrays(config) == 2) second_ = state();
}

void Optimizer::step(const ParamStore& store, double lr, double grad_scale) {
  const Cpu device = cpu(*store.context, "optimizer");
  ++steps_;
  std::vector<kernel::UpdateRange> ranges;
  ranges.reserve(store.trainable.size());
  for (const auto& entry : store.trainable) {
    const bool decays = !config_.decay_matrices_only || entry.param->global.rank() >= 2;
    const Tensor grad = store.gradient(entry);
    require(grad && grad.dtype() == first_.dtype(), "optimizer", "the gradient of ", entry.path, " is ", grad,
            ": a step is finished first");
    if (entry.count == 0) continue;
    ranges.push_back({.first = entry.first,
                      .count = entry.count,
                      .weight_decay = decays ? config_.weight_decay : 0,
                      .grad = grad.data(),
                      .master = entry.master.data(),
                      .value = entry.value.dtype() == entry.master.dtype() ? nullptr : entry.value.as<bf16>()});
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
                       ranges, first_, second_);
  } else {
    kernel::sgd_step(device,
                     {.lr = lr,
                      .momentum = config_.momentum,
                      .grad_scale = grad_scale,
                      .nesterov = config_.nesterov,
                      .first_step = steps_ == 1},
                     ranges, first_);
  }
}

std::vector<std::pair<std::string, Tensor>> Optimizer::state() const {
  if (config_.name == "adamw") return {{"exp_avg", first_}, {"exp_avg_sq", second_}};
  return {{"momentum", first_}};
}

}  // namespace chorus
