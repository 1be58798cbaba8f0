#include <chorus/nn/optim/optimizer.h>
#include <chorus/nn/optim/windows.h>

#include <algorithm>
#include <cmath>

namespace chorus {

int state_arrays(const OptimizerConfig& config) { return config.name == "adamw" ? 2 : 1; }

Optimizer::Optimizer(const OptimizerConfig& config, const ParamStore& store, std::int64_t window)
    : config_(config), window_(store.offload_folder.empty() ? std::max<std::int64_t>(1, store.state_size) : window) {
  require(config.name == "adamw" || config.name == "sgd", "optimizer", "'", config.name, "'; adamw and sgd are there");
  first_ = store.new_state(store.state_size, "optimizer");
  if (state_arrays(config) == 2) second_ = store.new_state(store.state_size, "optimizer");
}

void Optimizer::step(const ParamStore& store, double lr, double grad_scale) {
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
                      .master = entry.master.dtype() == store.wide ? entry.master.data() : nullptr,
                      .value = entry.value.dtype() == store.wide ? nullptr : entry.value.as<bf16>()});
  }
  // What lies in files, from a window's first element to its last or to the array's end.
  const auto each = [&](const Tensor& array, std::int64_t begin, std::int64_t end, void (Tensor::*what)() const) {
    end = std::min(end, array ? array.numel() : 0);
    if (begin < end) (array.flat_view(begin, {end - begin}).*what)();
  };
  const auto index_of = [&](const void* master) {
    const auto bytes = static_cast<const char*>(master) - static_cast<const char*>(store.masters.data());
    return static_cast<std::int64_t>(bytes) / static_cast<std::int64_t>(size_of(store.wide));
  };
  std::int64_t masters_done = 0;  // these follow each other as the state does, but only some parameters have them
  in_windows(std::move(ranges), store.state_size, window_, store.wide,
             [&](const StateWindow& window, std::span<const kernel::UpdateRange> inside) {
               std::int64_t masters_end = masters_done;
               for (const auto& range : inside)
                 if (range.master && range.value) masters_end = index_of(range.master) + range.count;
               for (const Tensor& array : {first_, second_}) each(array, window.end, window.end + window_, &Tensor::expect);
               each(store.masters, masters_end, masters_end + window_, &Tensor::expect);
               update(*store.context, inside, lr, grad_scale);
               for (const Tensor& array : {first_, second_}) each(array, window.begin, window.end, &Tensor::let_go);
               each(store.masters, masters_done, masters_end, &Tensor::let_go);
               masters_done = masters_end;
             });
}

void Optimizer::update(const Context& context, std::span<const kernel::UpdateRange> ranges, double lr, double grad_scale) {
  const Cpu device = cpu(context, "optimizer");
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
