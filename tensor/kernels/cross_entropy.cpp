#include <chorus/tensor/kernels/cross_entropy.h>
#include <chorus/tensor/kernels/vec.h>

#include <cmath>
#include <cstring>

namespace chorus::kernel {
namespace {

template <class C, class G>
double row_loss(C* z, std::int64_t n, std::int64_t label, double smoothing, G* gradient) {
  Vec<C> top = all(z[0]);
  for_vectors<C>(n, [&](std::int64_t i, auto extent) { top = maximum<C>(top, keep<C>(load<C>(z + i, extent), extent, z[0])); });
  const C largest = maximum_of<C>(top);
  double mean = 0;
  if (smoothing > 0) {
    Vec<C> total{};
    for_vectors<C>(n, [&](std::int64_t i, auto extent) { total += keep<C>(load<C>(z + i, extent) - largest, extent); });
    mean = static_cast<double>(sum<C>(total)) / static_cast<double>(n);
  }
  const double chosen = static_cast<double>(z[label] - largest);
  Vec<C> total{};
  for_vectors<C>(n, [&](std::int64_t i, auto extent) {
    const Vec<C> e = exp<C>(load<C>(z + i, extent) - largest);
    store<C>(z + i, e, extent);
    total += keep<C>(e, extent);
  });
  const C exps = sum<C>(total);
  if (gradient) {
    const C factor = 1 / exps, even = static_cast<C>(smoothing / static_cast<double>(n));
    const C at_label = z[label] * factor - even - static_cast<C>(1 - smoothing);  // gradient may be z
    map<C>(
        n, [=](Vec<C> e) { return e * factor - even; }, gradient, z);
    gradient[label] = static_cast<G>(at_label);
  }
  return std::log(static_cast<double>(exps)) - (1 - smoothing) * chosen - smoothing * mean;
}

}  // namespace

void cross_entropy(Cpu, Tensor& logits, std::span<const std::int32_t> labels, double smoothing, Tensor* gradient,
                   std::span<double> losses) {
  const std::int64_t rows = logits.rows(), n = logits.cols();
  const auto count = static_cast<std::size_t>(rows);
  require(labels.size() == count && losses.size() == count && (!gradient || gradient->shape() == logits.shape()),
          "cross_entropy", logits, " with ", labels.size(), " labels and room for ", losses.size(), " losses");
  const Span span(logits.context().trace, "cross entropy", 0, static_cast<double>(logits.bytes()) * 2);
  dispatch<float, double>(logits.dtype(), "cross_entropy", [&]<class C>() {
    dispatch_floating(gradient ? gradient->dtype() : logits.dtype(), "cross_entropy", [&]<class G>() {
      C* z = logits.as<C>();
      G* g = gradient ? gradient->as<G>() : nullptr;
#pragma omp parallel for schedule(static) if (rows * n > 16384)
      for (std::int64_t r = 0; r < rows; ++r)
        losses[static_cast<std::size_t>(r)] =
            row_loss(z + r * n, n, labels[static_cast<std::size_t>(r)], smoothing, g ? g + r * n : nullptr);
    });
  });
}

void scaled(Cpu, const Tensor& x, double factor, bool add, Tensor& y) {
  require(x.numel() == y.numel(), "scaled", x, " into ", y);
  dispatch_floating(x.dtype(), "scaled", [&]<class X>() {
    dispatch_floating(y.dtype(), "scaled", [&]<class Y>() {
      using C = compute_type<Y>;
      const C f = static_cast<C>(factor);
      Y* to = y.as<Y>();
      if (add)
        map<C>(
            y.numel(), [=](Vec<C> v, Vec<C> before) { return before + f * v; }, to, x.as<X>(), static_cast<const Y*>(to));
      else
        map<C>(
            y.numel(), [=](Vec<C> v) { return f * v; }, to, x.as<X>());
    });
  });
}

void scatter_scaled(Cpu, const Tensor& x, std::span<const std::int32_t> index, double factor, Tensor& y) {
  const std::int64_t cols = y.cols();
  require(x.cols() == cols && x.rows() == static_cast<std::int64_t>(index.size()), "scatter_scaled", x, " at ", index.size(),
          " rows of ", y);
  if (index.size() < static_cast<std::size_t>(y.rows())) std::memset(y.data(), 0, y.bytes());
  dispatch_floating(x.dtype(), "scatter_scaled", [&]<class X>() {
    dispatch_floating(y.dtype(), "scatter_scaled", [&]<class Y>() {
      using C = compute_type<Y>;
      const X* all = x.as<X>();
      Y* target = y.as<Y>();
      const C f = static_cast<C>(factor);
      const std::int64_t rows = x.rows();
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
      for (std::int64_t r = 0; r < rows; ++r) {
        const X* from = all + r * cols;
        Y* to = target + index[static_cast<std::size_t>(r)] * cols;
        for (std::int64_t c = 0; c < cols; ++c) to[c] = static_cast<Y>(f * static_cast<C>(from[c]));
      }
    });
  });
}

}  // namespace chorus::kernel
