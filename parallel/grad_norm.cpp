#include <chorus/parallel/grad_norm.h>
#include <chorus/tensor/kernels/optimizer.h>

#include <cmath>

namespace chorus {

double grad_norm(const ParamStore& store, Group& group) {
  // Gaps between parameters hold zeros, so the flat buffer can be summed whole.
  const Cpu device = cpu(store.grads.context(), "grad_norm");
  double squares = kernel::sum_of_squares(device, store.grads, 0, store.grads.numel());
  group.all_reduce(std::span<double>(&squares, 1));
  return std::sqrt(squares);
}

double clip_factor(double norm, double max_norm) { return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0; }

}  // namespace chorus
