#include <chorus/tensor/autograd/weight_grad.h>
#include <chorus/tensor/kernels/pointwise.h>
#include <chorus/tensor/ops/pointwise.h>

namespace chorus {
namespace {

using kernel::Binary;
using kernel::Gate;
using kernel::Unary;

Tensor unary(Unary op, const Tensor& x, double factor = 1) {
  Tensor y = empty_like(x);
  std::visit([&](auto device) { kernel::unary(device, op, x, factor, y); }, x.context().device);
  return y;
}

Tensor binary(Binary op, const Tensor& a, const Tensor& b, double factor = 1) {
  Tensor y = empty_like(a);
  std::visit([&](auto device) { kernel::binary(device, op, a, b, factor, y); }, a.context().device);
  return y;
}

void require_floating(const char* op, const Tensor& x) {
  require(x && is_floating(x.dtype()), op, "takes a floating tensor, given ", x);
}

void require_alike(const char* op, const Tensor& a, const Tensor& b) {
  require_floating(op, a);
  require(b && a.shape() == b.shape() && a.dtype() == b.dtype(), op, "takes equal shapes and types, given ", a, " and ", b);
}

Tensor gate(const char* name, Gate op, const Tensor& x) {
  require_floating(name, x);
  require(x.rank() >= 1 && x.cols() % 2 == 0, name, "splits the last dim into two halves, given ", x);
  const auto forward = [op, name](const Tensor& x) {
    const Span span(x.context().trace, name);
    Shape half = x.shape();
    half[-1] /= 2;
    Tensor y = Tensor::empty(x.context(), half, x.dtype());
    kernel::gate(cpu(x.context(), name), op, x, y);
    return y;
  };
  Tensor y = record(name, forward(x), {x}, {x}, [op, name](const Backward& b) {
    Tensor dx = empty_like(b.saved[0]);
    kernel::gate_backward(cpu(dx.context(), name), op, b.saved[0], b.dy, dx);
    return Grads{dx};
  });
  return remade_by(std::move(y), [forward](const Backward& b) { return Grads{forward(b.saved[0])}; });
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  require_alike("add", a, b);
  const Span span(a.context().trace, "add");
  return record("add", binary(Binary::add_scaled, a, b), {a, b}, {}, [](const Backward& b) { return Grads{b.dy, b.dy}; });
}

Tensor add_scaled(const Tensor& a, const Tensor& b, double factor) {
  require_alike("add_scaled", a, b);
  const Span span(a.context().trace, "add_scaled");
  return record("add_scaled", binary(Binary::add_scaled, a, b, factor), {a, b}, {}, [factor](const Backward& b) {
    return Grads{b.dy, b.needs(1) ? unary(Unary::scale, b.dy, factor) : Tensor()};
  });
}

Tensor add_row(const Tensor& x, const Tensor& bias) {
  require_floating("add_row", x);
  require(bias && bias.shape() == Shape{x.cols()} && bias.dtype() == x.dtype(), "add_row", "bias of ", x, " is ", bias);
  const Span span(x.context().trace, "add_row");
  Tensor y = empty_like(x);
  kernel::add_row(cpu(x.context(), "add_row"), x, bias, y);
  return record("add_row", y, {x, bias}, {}, [](const Backward& b) {
    Grads grads{b.dy, {}};
    if (b.needs(1)) {
      WeightGrad bias(b, 1, b.dy.context(), {b.dy.cols()}, b.dy.dtype());
      std::visit([&](auto device) { kernel::column_sum(device, b.dy, bias.add, bias.tensor); }, b.dy.context().device);
      grads[1] = bias.done();
    }
    return grads;
  });
}

Tensor mul(const Tensor& a, const Tensor& b) {
  require_alike("mul", a, b);
  const Span span(a.context().trace, "mul");
  return record("mul", binary(Binary::mul, a, b), {a, b}, {a, b}, [](const Backward& b) {
    Grads grads(2);
    if (b.needs(0)) grads[0] = binary(Binary::mul, b.dy, b.saved[1]);
    if (b.needs(1)) grads[1] = binary(Binary::mul, b.dy, b.saved[0]);
    return grads;
  });
}

Tensor scale(const Tensor& x, double factor) {
  require_floating("scale", x);
  const Span span(x.context().trace, "scale");
  return record("scale", unary(Unary::scale, x, factor), {x}, {},
                [factor](const Backward& b) { return Grads{unary(Unary::scale, b.dy, factor)}; });
}

Tensor relu(const Tensor& x) {
  require_floating("relu", x);
  const Span span(x.context().trace, "relu");
  // The output says where the input was positive, and the next product saves it anyway; so does an input that isn't kept.
  const bool again = is_remade(x);
  Tensor y = unary(Unary::relu, x);
  y = record("relu", y, {x}, {again ? x : y},
             [](const Backward& b) { return Grads{binary(Binary::relu_backward, b.saved[0], b.dy)}; });
  if (!again) return y;
  return remade_by(std::move(y), [](const Backward& b) {
    const Span span(b.saved[0].context().trace, "relu");
    return Grads{unary(Unary::relu, b.saved[0])};
  });
}

Tensor silu(const Tensor& x) {
  require_floating("silu", x);
  const Span span(x.context().trace, "silu");
  Tensor y = record("silu", unary(Unary::silu, x), {x}, {x},
                    [](const Backward& b) { return Grads{binary(Binary::silu_backward, b.saved[0], b.dy)}; });
  return remade_by(std::move(y), [](const Backward& b) {
    const Span span(b.saved[0].context().trace, "silu");
    return Grads{unary(Unary::silu, b.saved[0])};
  });
}

Tensor swiglu(const Tensor& gate_up) { return gate("swiglu", Gate::swiglu, gate_up); }
Tensor glu(const Tensor& x) { return gate("glu", Gate::glu, x); }

Tensor cast(const Tensor& x, DType to) {
  require_floating("cast", x);
  require(is_floating(to), "cast", "converts to floating types, asked for ", to);
  const Span span(x.context().trace, "cast");
  if (to == x.dtype()) return x;
  const auto convert = [](const Tensor& from, DType type) {
    Tensor y = Tensor::empty(from.context(), from.shape(), type);
    std::visit([&](auto device) { kernel::accumulate(device, from, false, y); }, from.context().device);
    return y;
  };
  return record("cast", convert(x, to), {x}, {},
                [convert, type = x.dtype()](const Backward& b) { return Grads{convert(b.dy, type)}; });
}

Tensor sum(const Tensor& x) {
  require_floating("sum", x);
  const Span span(x.context().trace, "sum");
  Tensor y = Tensor::empty(x.context(), {}, wide(x.dtype()));
  kernel::total(cpu(x.context(), "sum"), x, y);
  return record("sum", y, {x}, {}, [shape = x.shape(), type = x.dtype()](const Backward& b) {
    return Grads{Tensor::full(b.dy.context(), shape, type, b.dy.item())};
  });
}

Tensor softmax(const Tensor& x) {
  require_floating("softmax", x);
  const Span span(x.context().trace, "softmax");
  Tensor y = empty_like(x);
  kernel::softmax(cpu(x.context(), "softmax"), x, y);
  return record("softmax", y, {x}, {y}, [](const Backward& b) {
    Tensor dx = empty_like(b.dy);
    kernel::softmax_backward(cpu(dx.context(), "softmax"), b.saved[0], b.dy, dx);
    return Grads{dx};
  });
}

}  // namespace chorus
