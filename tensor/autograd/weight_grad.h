// Where a rule puts the gradient of a weight.
#pragma once
#include <chorus/tensor/autograd/node.h>

namespace chorus {

/// The sink of a leaf, or a tensor of its own for a weight that another op made. Kernels fill `tensor` (of wide type; added
/// to what is there if `add`), then the rule returns `done()` in place of the gradient.
class WeightGrad {
 public:
  WeightGrad(const Backward& b, std::size_t input, Context& context, const Shape& shape, DType dtype)
      : tensor(b.sink(input) ? b.sink(input)->in(context, b.inputs[input]->shape) : Tensor::empty(context, shape, wide(dtype))),
        add(b.sink(input) && b.sink(input)->written),
        sink_(b.sink(input)),
        dtype_(dtype) {}
  Tensor done();

  Tensor tensor;
  bool add;

 private:
  GradSink* sink_;
  DType dtype_;
};

}  // namespace chorus
