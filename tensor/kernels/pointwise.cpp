#include <chorus/tensor/kernels/pointwise.h>
#include <chorus/tensor/kernels/vec.h>

namespace chorus::kernel {

void accumulate(Cpu, const Tensor& x, bool add, Tensor& y) {
  dispatch_floating(x.dtype(), "accumulate", [&]<class X>() {
    dispatch_floating(y.dtype(), "accumulate", [&]<class Y>() {
      using C = compute_type<Y>;
      if (add)
        map<C>(
            y.numel(), [](Vec<C> sum, Vec<C> more) { return sum + more; }, y.as<Y>(), y.as<Y>(), x.as<X>());
      else
        map<C>(
            y.numel(), [](Vec<C> v) { return v; }, y.as<Y>(), x.as<X>());
    });
  });
}

void unary(Cpu, Unary op, const Tensor& x, double factor, Tensor& y) {
  dispatch_floating(x.dtype(), "unary", [&]<class T>() {
    using C = compute_type<T>;
    using V = Vec<C>;
    const auto run = [&](const auto& f) { map<C>(x.numel(), f, y.as<T>(), x.as<T>()); };
    switch (op) {
      case Unary::scale: return run([by = static_cast<C>(factor)](V v) { return v * by; });
      case Unary::relu: return run([](V v) { return v < C(0) ? V{} : v; });  // NaN stays NaN
      case Unary::silu: return run([](V v) { return v * sigmoid<C>(v); });
    }
  });
}

void binary(Cpu, Binary op, const Tensor& a, const Tensor& b, double factor, Tensor& y) {
  dispatch_floating(a.dtype(), "binary", [&]<class T>() {
    using C = compute_type<T>;
    using V = Vec<C>;
    const auto run = [&](const auto& f) { map<C>(a.numel(), f, y.as<T>(), a.as<T>(), b.as<T>()); };
    switch (op) {
      case Binary::add_scaled: return run([by = static_cast<C>(factor)](V u, V v) { return u + by * v; });
      case Binary::mul: return run([](V u, V v) { return u * v; });
      case Binary::relu_backward: return run([](V u, V v) { return u > C(0) ? v : V{}; });
      case Binary::silu_backward:
        return run([](V u, V v) {
          const SigmoidPair<C> at(u);
          return v * at.s * (C(1) + u * at.rest);
        });
    }
  });
}

void add_row(Cpu, const Tensor& x, const Tensor& row, Tensor& y) {
  dispatch_floating(x.dtype(), "add_row", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols();
    parallel_rows(x.rows(), n, [=, x = x.as<T>(), row = row.as<T>(), y = y.as<T>()](std::int64_t r) {
      for_vectors<C>(n, [=](std::int64_t c, auto extent) {
        store<C>(y + r * n + c, load<C>(x + r * n + c, extent) + load<C>(row + c, extent), extent);
      });
    });
  });
}

void column_sum(Cpu, const Tensor& x, bool add, Tensor& sums) {
  dispatch_floating(x.dtype(), "column_sum", [&]<class T>() {
    using C = compute_type<T>;
    // A thread owns a block of columns; rows are summed by chunks, in order, whatever the number of threads.
    constexpr std::int64_t block = 8 * lanes<C>, chunk = 128;
    const std::int64_t rows = x.rows(), n = x.cols(), blocks = (n + block - 1) / block;
    const T* from = x.as<T>();
    C* to = sums.as<C>();
#pragma omp parallel for schedule(static) if (rows * n > parallel_elements)
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t first = b * block, width = std::min(block, n - first);
      C total[block] = {};
      for (std::int64_t begin = 0; begin < rows; begin += chunk) {
        C part[block] = {};
        for (std::int64_t r = begin; r < std::min(rows, begin + chunk); ++r)
          for_vectors<C>(width, [&](std::int64_t c, auto extent) {
            store<C>(part + c, load<C>(part + c) + load<C>(from + r * n + first + c, extent));
          });
        for (std::int64_t c = 0; c < width; ++c) total[c] += part[c];
      }
      for (std::int64_t c = 0; c < width; ++c) to[first + c] = total[c] + (add ? to[first + c] : C(0));
    }
  });
}

void total(Cpu, const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), "sum", [&]<class T>() {
    using C = compute_type<T>;
    constexpr std::int64_t block = 4096;
    const std::int64_t n = x.numel(), blocks = (n + block - 1) / block;
    const T* from = x.as<T>();
    std::vector<double> parts(static_cast<std::size_t>(blocks));
#pragma omp parallel for schedule(static) if (n > parallel_elements)
    for (std::int64_t b = 0; b < blocks; ++b) {
      Vec<C> part{};
      for_vectors<C>(std::min(block, n - b * block),
                     [&](std::int64_t i, auto extent) { part += load<C>(from + b * block + i, extent); });
      parts[static_cast<std::size_t>(b)] = static_cast<double>(sum<C>(part));
    }
    double all = 0;
    for (const double part : parts) all += part;
    *y.as<C>() = static_cast<C>(all);
  });
}

void gate(Cpu, Gate op, const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), "gate", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = y.cols();
    const auto run = [&](auto f) {
      parallel_rows(y.rows(), 2 * n, [=, x = x.as<T>(), y = y.as<T>()](std::int64_t r) {
        const T *left = x + r * 2 * n, *right = left + n;
        for_vectors<C>(n, [=](std::int64_t c, auto extent) {
          store<C>(y + r * n + c, f(load<C>(left + c, extent), load<C>(right + c, extent)), extent);
        });
      });
    };
    if (op == Gate::swiglu)
      run([](Vec<C> l, Vec<C> r) { return l * sigmoid<C>(l) * r; });
    else
      run([](Vec<C> l, Vec<C> r) { return l * sigmoid<C>(r); });
  });
}

void gate_backward(Cpu, Gate op, const Tensor& x, const Tensor& dy, Tensor& dx) {
  dispatch_floating(x.dtype(), "gate", [&]<class T>() {
    using C = compute_type<T>;
    using V = Vec<C>;
    const std::int64_t n = dy.cols();
    // f(left, right, dy) sets the gradients of left and right.
    const auto run = [&](auto f) {
      parallel_rows(dy.rows(), 2 * n, [=, x = x.as<T>(), dy = dy.as<T>(), dx = dx.as<T>()](std::int64_t r) {
        const std::int64_t left = r * 2 * n, right = left + n;
        for_vectors<C>(n, [=](std::int64_t c, auto extent) {
          V dleft, dright;
          f(load<C>(x + left + c, extent), load<C>(x + right + c, extent), load<C>(dy + r * n + c, extent), dleft, dright);
          store<C>(dx + left + c, dleft, extent);
          store<C>(dx + right + c, dright, extent);
        });
      });
    };
    if (op == Gate::swiglu) {
      run([](V l, V r, V d, V& dl, V& dr) {
        const SigmoidPair<C> at(l);
        dl = d * r * at.s * (C(1) + l * at.rest);
        dr = d * l * at.s;
      });
    } else {
      run([](V l, V r, V d, V& dl, V& dr) {
        const SigmoidPair<C> at(r);
        dl = d * at.s;
        dr = d * l * at.s * at.rest;
      });
    }
  });
}

void softmax(Cpu, const Tensor& x, Tensor& y) {
  dispatch_floating(x.dtype(), "softmax", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols();
    parallel_rows(x.rows(), n, [=, x = x.as<T>(), y = y.as<T>()](std::int64_t r) {
      const T* from = x + r * n;
      constexpr C none = -std::numeric_limits<C>::infinity();
      Vec<C> top = all(none);
      for_vectors<C>(
          n, [&](std::int64_t c, auto extent) { top = maximum<C>(top, keep<C>(load<C>(from + c, extent), extent, none)); });
      const C highest = maximum_of<C>(top);
      Vec<C> weights{};
      for_vectors<C>(
          n, [&](std::int64_t c, auto extent) { weights += keep<C>(exp<C>(load<C>(from + c, extent) - highest), extent); });
      // Computed twice rather than kept: a bf16 y could not hold the unscaled values without rounding once more.
      const C factor = C(1) / sum<C>(weights);
      for_vectors<C>(n, [&](std::int64_t c, auto extent) {
        store<C>(y + r * n + c, exp<C>(load<C>(from + c, extent) - highest) * factor, extent);
      });
    });
  });
}

void softmax_backward(Cpu, const Tensor& y, const Tensor& dy, Tensor& dx) {
  dispatch_floating(y.dtype(), "softmax", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = y.cols();
    parallel_rows(y.rows(), n, [=, y = y.as<T>(), dy = dy.as<T>(), dx = dx.as<T>()](std::int64_t r) {
      const T *value = y + r * n, *grad = dy + r * n;
      Vec<C> products{};
      for_vectors<C>(n,
                     [&](std::int64_t c, auto extent) { products += load<C>(value + c, extent) * load<C>(grad + c, extent); });
      const C dot = sum<C>(products);
      for_vectors<C>(n, [&](std::int64_t c, auto extent) {
        store<C>(dx + r * n + c, load<C>(value + c, extent) * (load<C>(grad + c, extent) - dot), extent);
      });
    });
  });
}

}  // namespace chorus::kernel
