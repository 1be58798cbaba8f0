#include <chorus/tensor/autograd/weight_grad.h>
#include <chorus/tensor/kernels/pointwise.h>

namespace chorus {

Tensor WeightGrad::done() {
  if (sink_) {
    sink_->written = true;
    return {};
  }
  if (tensor.dtype() == dtype_) return tensor;
  Tensor rounded = Tensor::empty(tensor.context(), tensor.shape(), dtype_);
  std::visit([&](auto device) { kernel::accumulate(device, tensor, false, rounded); }, tensor.context().device);
  return rounded;
}

}  // namespace chorus
