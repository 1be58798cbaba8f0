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

}  // namespace

void accumulate(Cuda device, const Tensor& x, bool add, Tensor& y) {
  dispatch_floating(x.dtype(), "accumulate", [&]<class X>() {
    dispatch_floating(y.dtype(), "accumulate", [&]<class Y>() {
      auto* to = cuda::elements<Y>(y);
      const auto* from = cuda::elements<X>(x);
      if (add)
        cuda::elementwise(device, "accumulate", Add{}, y.numel(), to, from, static_cast<const cuda::device_type<Y>*>(to));
      else
        cuda::elementwise(device, "accumulate", Identity{}, y.numel(), to, from);
    });
  });
}

}  // namespace chorus::kernel
