#include <chorus/nn/layers/norm.h>
#include <chorus/tensor/ops/norm.h>

namespace chorus {

Tensor RmsNorm::operator()(const Tensor& x) const { return rms_norm(x, weight.value, eps); }

Tensor LayerNorm::operator()(const Tensor& x) const { return layer_norm(x, weight.value, bias.value, eps); }

BatchNorm::BatchNorm(std::int64_t features, Mode mode, double eps)
    : weight({features}, Init::one()), bias({features}, Init::zero()), mode(mode), eps(eps) {
  mean.global = variance.global = step_mean.global = step_variance.global = {features};
  variance.initial = step_variance.initial = 1;
}

Tensor BatchNorm::operator()(const Tensor& x, const Pass& pass) const {
  if (mode == Mode::frozen || !pass.training || !weight.trainable)
    return fixed_norm(x, mean.value, variance.value, weight.value, bias.value, eps);
  if (!x.context().repeating) statistics.add(x.detach(), step_mean.value);
  return fixed_norm(x, step_mean.value, step_variance.value, weight.value, bias.value, eps);
}

void BatchNorm::reach_statistics() {
  statistics.active = weight.trainable && weight.value;
  statistics.mean = step_mean.value;
  statistics.variance = step_variance.value;
  statistics.running_mean = mean.value;
  statistics.running_variance = variance.value;
}

void StepStatistics::add(const Tensor& x, const Tensor& center) {
  const std::int64_t n = x.cols();
  cpu(x.context(), "batch statistics");
  if (!sums) sums = Tensor::zeros(x.context(), {1 + 2 * n}, DType::f64);
  const auto offset = center.to_doubles();
  auto *total = sums.as<double>() + 1, *squares = total + n;
  dispatch_floating(x.dtype(), "batch statistics", [&]<class T>() {
    const T* row = x.as<T>();
    for (std::int64_t t = 0; t < x.rows(); ++t, row += n) {
      for (std::int64_t c = 0; c < n; ++c) {
        const double d = static_cast<double>(row[c]) - offset[static_cast<std::size_t>(c)];
        total[c] += d;
        squares[c] += d * d;
      }
    }
  });
  sums.as<double>()[0] += static_cast<double>(x.rows());
}

void StepStatistics::commit() {
  if (!active) return;
  const std::int64_t n = mean.numel();
  if (!sums) sums = Tensor::zeros(mean.context(), {1 + 2 * n}, DType::f64);
  const Tensor summed = sum([](Tensor t) { return t; }, sums);
  const double* all = summed.as<double>();
  const double rows = all[0];
  if (rows > 0) {
    dispatch<float, double>(mean.dtype(), "batch statistics", [&]<class T>() {
      const auto mix = [this](T& old, double now) {
        old = static_cast<T>((1 - momentum) * static_cast<double>(old) + momentum * now);
      };
      for (std::int64_t c = 0; c < n; ++c) {
        const double shift = all[1 + c] / rows, var = std::max(0.0, all[1 + n + c] / rows - shift * shift);
        const double centre = static_cast<double>(mean.as<T>()[c]) + shift;
        mean.as<T>()[c] = static_cast<T>(centre);
        variance.as<T>()[c] = static_cast<T>(var);
        mix(running_mean.as<T>()[c], centre);
        mix(running_variance.as<T>()[c], var);
      }
    });
  }
  sums = Tensor();
}

}  // namespace chorus
