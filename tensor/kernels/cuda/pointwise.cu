#include <chorus/tensor/kernels/pointwise.h>

#include <chorus/tensor/kernels/cuda/elementwise.cuh>

namespace chorus::kernel {
namespace {

struct Identity {
  template <class C>
  __device__ C operator()(C x) const {
    return x;
  }
};
struct Add {
  template <class A, class B>
  __device__ auto operator()(A a, B b) const {
    return a + b;
  }
};

// The functors below work in C, the compute type of their elements; factors arrive as C, so that no kernel touches f64 unasked.
template <class C>
struct Scale {
  C factor;
  __device__ C operator()(C x) const { return factor * x; }
};
struct Relu {
  template <class C>
  __device__ C operator()(C x) const {
    return x > 0 ? x : C{0};
  }
};
template <class C>
__device__ C sigmoid(C x) {
  return C{1} / (C{1} + exp(-x));
}
struct Silu {
  template <class C>
  __device__ C operator()(C x) const {
    return x * sigmoid(x);
  }
};
template <class C>
struct AddScaled {
  C factor;
  __device__ C operator()(C a, C b) const { return a + factor * b; }
};
struct Mul {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a * b;
  }
};
struct ReluBackward {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a > 0 ? b : C{0};
  }
};
struct SiluBackward {
  template <class C>
  __device__ C operator()(C a, C b) const {
    const C s = sigmoid(a);
    return b * s * (1 + a * (1 - s));
  }
};

}  // namespace

void unary(Cuda device, Unary op, const Tensor& x, double factor, Tensor& y) {
  dispatch_floating(x.dtype(), "unary", [&]<class T>() {
    using C = compute_type<T>;
    const auto run = [&](auto f) {
      cuda::elementwise(device, "unary", f, y.numel(), cuda::elements<T>(y), cuda::constant<T>(x));
    };
    switch (op) {
      case Unary::scale: return run(Scale<C>{static_cast<C>(factor)});
      case Unary::relu: return run(Relu{});
      case Unary::silu: return run(Silu{});
    }
  });
}

void binary(Cuda device, Binary op, const Tensor& a, const Tensor& b, double factor, Tensor& y) {
  dispatch_floating(a.dtype(), "binary", [&]<class T>() {
    using C = compute_type<T>;
    const auto run = [&](auto f) {
      cuda::elementwise(device, "binary", f, y.numel(), cuda::elements<T>(y), cuda::constant<T>(a), cuda::constant<T>(b));
    };
    switch (op) {
      case Binary::add_scaled: return run(AddScaled<C>{static_cast<C>(factor)});
      case Binary::mul: return run(Mul{});
      case Binary::relu_backward: return run(ReluBackward{});
      case Binary::silu_backward: return run(SiluBackward{});
    }
  });
}

void accumulate(Cuda device, const Tensor& x, bool add, Tensor& y) {
  dispatch_floating(x.dtype(), "accumulate", [&]<class X>() {
    dispatch_floating(y.dtype(), "accumulate", [&]<class Y>() {
      auto* to = cuda::elements<Y>(y);
      const auto* from = cuda::constant<X>(x);
      if (add)
        cuda::elementwise(device, "accumulate", Add{}, y.numel(), to, from, cuda::constant<Y>(y));
      else
        cuda::elementwise(device, "accumulate", Identity{}, y.numel(), to, from);
    });
  });
}

}  // namespace chorus::kernel
