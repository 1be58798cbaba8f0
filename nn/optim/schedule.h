#pragma once
#include <chorus/core/config.h>

#include <cstdint>
#include <string>

namespace chorus {

struct ScheduleConfig {
  std::string name = "cosine";    ///< constant, linear, cosine, inverse_sqrt, wsd
  double lr = 1e-3, min_lr = 0;   ///< peak, and the floor of every decay
  std::int64_t warmup_steps = 0;  ///< linear from 0; step i (from 0) of the warm-up has lr * (i + 1) / warmup_steps
  std::int64_t decay_steps = 0;   ///< wsd: length of its linear decay at the end

  template <class V>
  void fields(V&& v) {
    v("name", name, "form after the warm-up", one_of("constant", "linear", "cosine", "inverse_sqrt", "wsd"));
    v("lr", lr, "peak learning rate", greater_than(0.0));
    v("min_lr", min_lr, "floor of every decay", at_least(0.0));
    v("warmup_steps", warmup_steps, "steps of linear warm-up", at_least(0));
    v("decay_steps", decay_steps, "wsd: steps of its decay", at_least(0));
  }
  template <class Check>
  void rules(Check&& check) const {
    check(min_lr <= lr, "min_lr", min_lr, " is more than lr = ", lr);
    check(decay_steps == 0 || name == "wsd", "decay_steps", decay_steps, " is for name = \"wsd\"; it is \"", name, '"');
  }
};

/// Learning rate of optimizer step `step` (from 0) of `total`. inverse_sqrt: lr * sqrt(w / (step + 1)), w = max(warm-up, 1).
double learning_rate(const ScheduleConfig& config, std::int64_t step, std::int64_t total);

}  // namespace chorus
