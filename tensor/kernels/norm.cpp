#include <chorus/tensor/kernels/norm.h>
#include <chorus/tensor/kernels/row_sums.h>

#include <array>
#include <cmath>

namespace chorus::kernel {
namespace {

/// Sum over a row of f(column, extent).
template <class C, class F>
[[gnu::always_inline]] inline C row_sum(std::int64_t n, const F& f) {
  Vec<C> total{};
  for_vectors<C>(n, [&](std::int64_t c, auto extent) { total += f(c, extent); });
  return sum<C>(total);
}

template <class C, class F>
[[gnu::always_inline]] inline void add_to(C* part, std::int64_t n, const F& f) {
  for_vectors<C>(n, [&](std::int64_t c, auto extent) { store<C>(part + c, load<C>(part + c, extent) + f(c, extent), extent); });
}

/// The wanted ones of two targets, and the columns where each starts in a part; -1 where it is not wanted.
struct Wanted {
  std::array<ColumnTarget, 2> targets;
  std::size_t count = 0;
  std::array<std::int64_t, 2> at{-1, -1};
  Wanted(std::int64_t n, ColumnTarget weight, ColumnTarget bias) {
    for (const auto& [target, i] : {std::pair{weight, 0}, std::pair{bias, 1}})
      if (target.sums) {
        at[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(count) * n;
        targets[count++] = target;
      }
  }
  std::span<const ColumnTarget> span() const { return {targets.data(), count}; }
};

}  // namespace

void rms_norm(Cpu, const Tensor& x, const Tensor& weight, double eps, Tensor& y, Tensor& rstd) {
  dispatch_floating(x.dtype(), "rms_norm", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols();
    parallel_rows(x.rows(), n, [=, x = x.as<T>(), w = weight.as<T>(), y = y.as<T>(), rstd = rstd.as<C>()](std::int64_t r) {
      const T* row = x + r * n;
      const C squares = row_sum<C>(n, [&](std::int64_t c, auto extent) {
        const Vec<C> v = load<C>(row + c, extent);
        return v * v;
      });
      const C factor = C(1) / std::sqrt(squares / static_cast<C>(n) + static_cast<C>(eps));
      rstd[r] = factor;
      for_vectors<C>(n, [&](std::int64_t c, auto extent) {
        store<C>(y + r * n + c, load<C>(row + c, extent) * factor * load<C>(w + c, extent), extent);
      });
    });
  });
}

void rms_norm_backward(Cpu, const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dy, Tensor& dx,
                       ColumnTarget dweight) {
  dispatch_floating(x.dtype(), "rms_norm", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols();
    const Wanted wanted(n, dweight, {});
    const auto body = [=, x = x.as<T>(), w = weight.as<T>(), rstd = rstd.as<C>(), dy = dy.as<T>(), dx = dx.as<T>()](
                          std::int64_t r, C* part) {
      const T *row = x + r * n, *grad = dy + r * n;
      const C dot = row_sum<C>(n, [&](std::int64_t c, auto extent) {
        return load<C>(row + c, extent) * load<C>(w + c, extent) * load<C>(grad + c, extent);
      });
      const C factor = rstd[r], shift = factor * factor * factor * dot / static_cast<C>(n);
      if (part)
        add_to(part, n,
               [&](std::int64_t c, auto extent) { return load<C>(grad + c, extent) * load<C>(row + c, extent) * factor; });
      for_vectors<C>(n, [&](std::int64_t c, auto extent) {
        const Vec<C> direct = load<C>(w + c, extent) * load<C>(grad + c, extent) * factor;
        store<C>(dx + r * n + c, direct - load<C>(row + c, extent) * shift, extent);
      });
    };
    sum_over_rows<C>(x.context(), x.rows(), n, wanted.span(), body);
  });
}

void layer_norm(Cpu, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Tensor& y, Tensor& mean,
                Tensor& rstd) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols();
    parallel_rows(x.rows(), n,
                  [=, x = x.as<T>(), w = weight.as<T>(), bias = bias.as<T>(), y = y.as<T>(), mean = mean.as<C>(),
                   rstd = rstd.as<C>()](std::int64_t r) {
                    const T* row = x + r * n;
                    const C middle = row_sum<C>(n, [&](std::int64_t c, auto extent) { return load<C>(row + c, extent); }) /
                                     static_cast<C>(n);
                    // Two passes: the mean square minus the squared mean cancels when the mean is large.
                    const C squares = row_sum<C>(n, [&](std::int64_t c, auto extent) {
                      const Vec<C> v = keep<C>(load<C>(row + c, extent) - middle, extent);
                      return v * v;
                    });
                    const C factor = C(1) / std::sqrt(squares / static_cast<C>(n) + static_cast<C>(eps));
                    mean[r] = middle;
                    rstd[r] = factor;
                    for_vectors<C>(n, [&](std::int64_t c, auto extent) {
                      const Vec<C> normal = (load<C>(row + c, extent) - middle) * factor;
                      store<C>(y + r * n + c, normal * load<C>(w + c, extent) + load<C>(bias + c, extent), extent);
                    });
                  });
  });
}

void layer_norm_backward(Cpu, const Tensor& x, const Tensor& weight, const Tensor& mean, const Tensor& rstd, const Tensor& dy,
                         Tensor& dx, ColumnTarget dweight, ColumnTarget dbias) {
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols();
    const Wanted wanted(n, dweight, dbias);
    const auto body = [=, at = wanted.at, x = x.as<T>(), w = weight.as<T>(), mean = mean.as<C>(), rstd = rstd.as<C>(),
                       dy = dy.as<T>(), dx = dx.as<T>()](std::int64_t r, C* part) {
      const T *row = x + r * n, *grad = dy + r * n;
      const C middle = mean[r], factor = rstd[r];
      const auto normal = [&](std::int64_t c, auto extent) { return (load<C>(row + c, extent) - middle) * factor; };
      const auto weighted = [&](std::int64_t c, auto extent) { return load<C>(w + c, extent) * load<C>(grad + c, extent); };
      const C along_one = row_sum<C>(n, weighted) / static_cast<C>(n);
      const C along_normal =
          row_sum<C>(n, [&](std::int64_t c, auto extent) { return weighted(c, extent) * normal(c, extent); }) /
          static_cast<C>(n);
      if (at[0] >= 0)
        add_to(part + at[0], n, [&](std::int64_t c, auto extent) { return load<C>(grad + c, extent) * normal(c, extent); });
      if (at[1] >= 0) add_to(part + at[1], n, [&](std::int64_t c, auto extent) { return load<C>(grad + c, extent); });
      for_vectors<C>(n, [&](std::int64_t c, auto extent) {
        store<C>(dx + r * n + c, (weighted(c, extent) - along_one - normal(c, extent) * along_normal) * factor, extent);
      });
    };
    sum_over_rows<C>(x.context(), x.rows(), n, wanted.span(), body);
  });
}

void fixed_norm(Cpu, const Tensor& x, const Tensor& mean, const Tensor& variance, const Tensor& weight, const Tensor& bias,
                double eps, Tensor& y, Tensor& rstd) {
  dispatch_floating(x.dtype(), "fixed_norm", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols();
    for (std::int64_t c = 0; c < n; ++c) rstd.as<C>()[c] = C(1) / std::sqrt(variance.as<C>()[c] + static_cast<C>(eps));
    parallel_rows(x.rows(), n,
                  [=, x = x.as<T>(), mean = mean.as<C>(), rstd = rstd.as<C>(), w = weight.as<T>(), bias = bias.as<T>(),
                   y = y.as<T>()](std::int64_t r) {
                    for_vectors<C>(n, [&](std::int64_t c, auto extent) {
                      const Vec<C> normal =
                          (load<C>(x + r * n + c, extent) - load<C>(mean + c, extent)) * load<C>(rstd + c, extent);
                      store<C>(y + r * n + c, normal * load<C>(w + c, extent) + load<C>(bias + c, extent), extent);
                    });
                  });
  });
}

void fixed_norm_backward(Cpu, const Tensor& x, const Tensor& mean, const Tensor& rstd, const Tensor& weight, const Tensor& dy,
                         Tensor& dx, ColumnTarget dweight, ColumnTarget dbias) {
  dispatch_floating(x.dtype(), "fixed_norm", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols();
    const Wanted wanted(n, dweight, dbias);
    const auto body = [=, at = wanted.at, x = x.as<T>(), mean = mean.as<C>(), rstd = rstd.as<C>(), w = weight.as<T>(),
                       dy = dy.as<T>(), dx = dx.as<T>()](std::int64_t r, C* part) {
      const T *row = x + r * n, *grad = dy + r * n;
      if (at[0] >= 0)
        add_to(part + at[0], n, [&](std::int64_t c, auto extent) {
          return load<C>(grad + c, extent) * (load<C>(row + c, extent) - load<C>(mean + c, extent)) * load<C>(rstd + c, extent);
        });
      if (at[1] >= 0) add_to(part + at[1], n, [&](std::int64_t c, auto extent) { return load<C>(grad + c, extent); });
      for_vectors<C>(n, [&](std::int64_t c, auto extent) {
        store<C>(dx + r * n + c, load<C>(grad + c, extent) * load<C>(w + c, extent) * load<C>(rstd + c, extent), extent);
      });
    };
    sum_over_rows<C>(x.context(), x.rows(), n, wanted.span(), body);
  });
}

}  // namespace chorus::kernel
