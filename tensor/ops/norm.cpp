#include <chorus/tensor/autograd/weight_grad.h>
#include <chorus/tensor/kernels/norm.h>
#include <chorus/tensor/ops/norm.h>

#include <optional>

namespace chorus {
namespace {

using kernel::ColumnTarget;

void require_weight(const char* op, const char* role, const Tensor& x, const Tensor& weight) {
  require(weight && weight.shape() == Shape{x.cols()} && weight.dtype() == x.dtype(), op, role, " of ", x, " is ", weight);
}

Tensor row_statistics(const Tensor& x) { return Tensor::empty(x.context(), {x.rows()}, wide(x.dtype())); }

struct RmsNormed {
  Tensor y, rstd;
};
RmsNormed rms_normed(const Tensor& x, const Tensor& weight, double eps) {
  const Span span(x.context().trace, "rms_norm");
  RmsNormed out{empty_like(x), row_statistics(x)};
  std::visit([&](auto device) { kernel::rms_norm(device, x, weight, eps, out.y, out.rstd); }, x.context().device);
  return out;
}

struct LayerNormed {
  Tensor y, mean, rstd;
};
LayerNormed layer_normed(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const Span span(x.context().trace, "layer_norm");
  LayerNormed out{empty_like(x), row_statistics(x), row_statistics(x)};
  kernel::layer_norm(cpu(x.context(), "layer_norm"), x, weight, bias, eps, out.y, out.mean, out.rstd);
  return out;
}

struct FixedNormed {
  Tensor y, rstd;
};
FixedNormed fixed_normed(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight, const Tensor& bias,
                         double eps) {
  const Span span(x.context().trace, "fixed_norm");
  FixedNormed out{empty_like(x), Tensor::empty(x.context(), weight.shape(), wide(x.dtype()))};
  kernel::fixed_norm(cpu(x.context(), "fixed_norm"), x, mean, variance, weight, bias, eps, out.y, out.rstd);
  return out;
}

/// The gradients of inputs 1 (weight) and 2 (bias), where they are wanted, around a kernel that takes both targets.
template <class Kernel>
Grads norm_grads(const Backward& b, const Tensor& x, const Kernel& kernel) {
  Tensor dx = empty_like(x);
  std::vector<std::optional<WeightGrad>> weights(b.inputs.size());
  std::vector<ColumnTarget> targets(3);
  for (std::size_t i = 1; i < weights.size(); ++i)
    if (b.needs(i)) {
      weights[i].emplace(b, i, x.context(), Shape{x.cols()}, x.dtype());
      targets[i] = {&weights[i]->tensor, weights[i]->add};
    }
  kernel(dx, targets[1], targets[2]);
  Grads grads{dx};
  for (std::size_t i = 1; i < weights.size(); ++i) grads.push_back(weights[i] ? weights[i]->done() : Tensor());
  return grads;
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  require(x && x.rank() >= 1 && is_floating(x.dtype()), "rms_norm", "takes a floating tensor with a last dim, given ", x);
  require_weight("rms_norm", "weight", x, weight);
  auto [y, rstd] = rms_normed(x, weight, eps);
  y = record("rms_norm", y, {x, weight}, {x, weight, rstd}, [](const Backward& b) {
    const Tensor &x = b.saved[0], &weight = b.saved[1], &rstd = b.saved[2];
    return norm_grads(b, x, [&](Tensor& dx, ColumnTarget dweight, ColumnTarget) {
      std::visit([&](auto device) { kernel::rms_norm_backward(device, x, weight, rstd, b.dy, dx, dweight); },
                 x.context().device);
    });
  });
  return remade_by(std::move(y), [eps](const Backward& b) { return Grads{rms_normed(b.saved[0], b.saved[1], eps).y}; });
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  require(x && x.rank() >= 1 && is_floating(x.dtype()), "layer_norm", "takes a floating tensor with a last dim, given ", x);
  require_weight("layer_norm", "weight", x, weight);
  require_weight("layer_norm", "bias", x, bias);
  auto [y, mean, rstd] = layer_normed(x, weight, bias, eps);
  y = record("layer_norm", y, {x, weight, bias}, {x, weight, mean, rstd, bias}, [](const Backward& b) {
    const auto& x = b.saved[0];
    return norm_grads(b, x, [&](Tensor& dx, ColumnTarget dweight, ColumnTarget dbias) {
      kernel::layer_norm_backward(cpu(x.context(), "layer_norm"), x, b.saved[1], b.saved[2], b.saved[3], b.dy, dx, dweight,
                                  dbias);
    });
  });
  return remade_by(std::move(y),
                   [eps](const Backward& b) { return Grads{layer_normed(b.saved[0], b.saved[1], b.saved[4], eps).y}; });
}

Tensor fixed_norm(const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight, const Tensor& bias,
                  double eps) {
  require(x && x.rank() >= 1 && is_floating(x.dtype()), "fixed_norm", "takes a floating tensor with a last dim, given ", x);
  require_weight("fixed_norm", "weight", x, weight);
  require_weight("fixed_norm", "bias", x, bias);
  for (const Tensor* t : {&mean, &variance})
    require(*t && t->shape() == weight.shape() && t->dtype() == wide(x.dtype()), "fixed_norm", "statistics of ", x, " are ",
            *t);
  auto [y, rstd] = fixed_normed(x, mean, variance, weight, bias, eps);
  y = record("fixed_norm", y, {x, weight, bias}, {x, weight, mean, rstd, variance, bias}, [](const Backward& b) {
    const auto& x = b.saved[0];
    return norm_grads(b, x, [&](Tensor& dx, ColumnTarget dweight, ColumnTarget dbias) {
      kernel::fixed_norm_backward(cpu(x.context(), "fixed_norm"), x, b.saved[2], b.saved[3], b.saved[1], b.dy, dx, dweight,
                                  dbias);
    });
  });
  return remade_by(std::move(y), [eps](const Backward& b) {
    return Grads{fixed_normed(b.saved[0], b.saved[2], b.saved[4], b.saved[1], b.saved[5], eps).y};
  });
}

}  // namespace chorus
