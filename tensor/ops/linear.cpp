#include <chorus/tensor/autograd/weight_grad.h>
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/kernels/pointwise.h>
#include <chorus/tensor/ops/linear.h>

namespace chorus {
namespace {

using kernel::Form;

Tensor product(Form form, const Tensor& a, const Tensor& b, const Shape& shape, const Tensor* bias = nullptr) {
  Tensor y = Tensor::empty(a.context(), shape, a.dtype());
  std::visit([&](auto device) { kernel::matmul(device, form, a, b, y, {false, bias}); }, a.context().device);
  return y;
}

// Inputs are x, weight, bias; saved are x, weight. `leaves` asks for the gradients that go to sinks and may wait; those of
// tensors that other ops made are part of the walk through the graph.
void weight_gradients(const Backward& b, bool leaves, Grads& grads) {
  auto& context = b.dy.context();
  const auto asked = [&](std::size_t input) { return b.needs(input) && (b.sink(input) != nullptr) == leaves; };
  if (asked(1)) {
    const Tensor& x = b.saved[0];
    WeightGrad weight(b, 1, context, {b.dy.cols(), x.cols()}, b.dy.dtype());
    std::visit(
        [&](auto device) {
          kernel::matmul(device, Form::tn, b.dy, x, weight.tensor, {weight.add, nullptr});
        },
        context.device);
    grads[1] = weight.done();
  }
  if (asked(2)) {
    WeightGrad bias(b, 2, context, {b.dy.cols()}, b.dy.dtype());
    std::visit([&](auto device) { kernel::column_sum(device, b.dy, bias.add, bias.tensor); }, context.device);
    grads[2] = bias.done();
  }
}

Grads input_rule(const Backward& b) {
  Grads grads(3);
  if (b.needs(0)) {
    Shape shape = b.dy.shape();
    shape[-1] = b.saved[1].size(1);
    grads[0] = product(Form::nn, b.dy, b.saved[1], shape);
  }
  weight_gradients(b, false, grads);
  return grads;
}

Grads weight_rule(const Backward& b) {
  Grads grads(3);
  weight_gradients(b, true, grads);
  return grads;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require(x && x.rank() >= 1 && weight && weight.rank() == 2 && x.cols() == weight.size(1), "linear", "x is ", x, ", weight ",
          weight, "; x [.., in] and weight [out, in] are needed");
  require(!bias || (bias.rank() == 1 && bias.size(0) == weight.size(0)), "linear", "bias is ", bias, " for weight ", weight);
  const Span span(x.context().trace, "linear");
  Shape shape = x.shape();
  shape[-1] = weight.size(0);
  Tensor y = product(Form::nt, x, weight, shape, bias ? &bias : nullptr);
  // The gradient of each needs the other: a frozen weight keeps no activation alive.
  const Saved saved{weight.node() ? x : Tensor(), x.node() ? weight : Tensor()};
  return record("linear", std::move(y), {x, weight, bias}, saved, &input_rule, &weight_rule);
}

}  // namespace chorus
