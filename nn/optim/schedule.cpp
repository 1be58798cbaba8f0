#include <chorus/core/error.h>
#include <chorus/nn/optim/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace chorus {

double learning_rate(const ScheduleConfig& config, std::int64_t step, std::int64_t total) {
  const auto& name = config.name;
  require(name == "constant" || name == "linear" || name == "cosine" || name == "inverse_sqrt" || name == "wsd", "schedule",
          "'", name, "'; constant, linear, cosine, inverse_sqrt and wsd are there");
  const auto at = static_cast<double>(step), warmup = static_cast<double>(config.warmup_steps);
  if (step < config.warmup_steps) return config.lr * (at + 1) / warmup;
  if (name == "constant") return config.lr;
  if (name == "inverse_sqrt") return std::max(config.min_lr, config.lr * std::sqrt(std::max(warmup, 1.0) / (at + 1)));
  const double begin = name == "wsd" ? static_cast<double>(total - config.decay_steps) : warmup;
  const double done = std::clamp((at - begin) / std::max(static_cast<double>(total) - begin, 1.0), 0.0, 1.0);
  const double left = name == "cosine" ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
  return config.min_lr + (config.lr - config.min_lr) * left;
}

}  // namespace chorus
