#include <chorus/tensor/kernels/column_sum.h>
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/ops/linear.h>

namespace chorus {
namespace {

using kernel::Form;

Tensor product(Form form, const Tensor& a, const Tensor& b, const Shape& shape, const Tensor* bias = nullptr) {
  Tensor y = Tensor::empty(a.context(), shape, a.dtype());
  std::visit([&](auto device) { kernel::matmul(device, form, a, b, y, {false, bias}); }, a.context().device);
  return y;
}

Tensor column_sums(const Tensor& dy, const Shape& shape) {
  Tensor sums = Tensor::empty(dy.context(), shape, dy.dtype());
  kernel::column_sum(cpu(dy.context(), "linear"), dy, false, sums);
  return sums;
}

// Inputs and saved: x, weight, bias. Whatever isn't a leaf gets its gradient with x, since others wait for it.
Grads input_gradients(const Backward& b) {
  Grads grads(3);
  const Tensor &x = b.saved[0], &weight = b.saved[1];
  if (b.needs(0)) {
    Shape shape = b.dy.shape();
    shape[-1] = weight.size(1);
    grads[0] = product(Form::nn, b.dy, weight, shape);
  }
  if (b.needs(1) && !b.sink(1)) grads[1] = product(Form::tn, b.dy, x, {b.dy.cols(), x.cols()});
  if (b.needs(2) && !b.sink(2)) grads[2] = column_sums(b.dy, {b.dy.cols()});
  return grads;
}

Grads leaf_gradients(const Backward& b) {
  const auto& context = b.dy.context();
  if (GradSink* sink = b.sink(1)) {
    std::visit(
        [&](auto device) {
          kernel::matmul(device, Form::tn, b.dy, b.saved[0], sink->grad, {sink->written, nullptr});
        },
        context.device);
    sink->written = true;
  }
  if (GradSink* sink = b.sink(2)) {
    kernel::column_sum(cpu(context, "linear"), b.dy, sink->written, sink->grad);
    sink->written = true;
  }
  return Grads(3);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require(x && x.rank() >= 1 && weight && weight.rank() == 2 && x.cols() == weight.size(1), "linear", "x is ", x, ", weight ",
          weight, "; x [.., in] and weight [out, in] are needed");
  require(!bias || (bias.rank() == 1 && bias.size(0) == weight.size(0)), "linear", "bias is ", bias, " for weight ", weight);
  Shape shape = x.shape();
  shape[-1] = weight.size(0);
  Tensor y = product(Form::nt, x, weight, shape, bias ? &bias : nullptr);
  if (!wants_grad({x, weight, bias})) return y;
  // The gradient of each needs the other: a frozen weight keeps no activation alive.
  const Saved saved{weight.node() ? x : Tensor(), x.node() ? weight : Tensor()};
  return record("linear", std::move(y), {x, weight, bias}, saved, &input_gradients, &leaf_gradients);
}

}  // namespace chorus
