#include <chorus/parallel/grad_norm.h>
#include <chorus/tensor/kernels/optimizer.h>

#include <cmath>

namespace chorus {

double grad_norm(const ParamStore& store, std::span<Group* const> groups) {
  std::vector<Tensor> grads;
  for (const auto& entry : store.trainable)
    if (entry.param->counted) grads.push_back(store.gradient(entry));
  double squares = kernel::sum_of_squares(cpu(*store.context, "grad_norm"), grads);
  for (Group* group : groups) group->all_reduce(std::span<double>(&squares, 1));
  return std::sqrt(squares);
}

double clip_factor(double norm, double max_norm) { return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0; }

StepVerdict judge_step(double norm, double loss, std::int64_t skipped, std::int64_t most_skipped) {
  if (std::isfinite(norm) && std::isfinite(loss)) return StepVerdict::update;
  return skipped < most_skipped ? StepVerdict::skip : StepVerdict::stop;
}

}  // namespace chorus
