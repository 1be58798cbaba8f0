#include <chorus/tensor/kernels/pointwise.h>

namespace chorus::kernel {

void accumulate(Cpu, const Tensor& x, bool add, Tensor& y) {
  dispatch_floating(x.dtype(), "accumulate", [&]<class X>() {
    dispatch_floating(y.dtype(), "accumulate", [&]<class Y>() {
      using C = compute_type<Y>;
      const X* from = x.as<X>();
      Y* to = y.as<Y>();
      const std::int64_t n = y.numel();
#pragma omp parallel for simd schedule(static) if (n > 65536)
      for (std::int64_t i = 0; i < n; ++i)
        to[i] = static_cast<Y>(static_cast<C>(from[i]) + (add ? static_cast<C>(to[i]) : C{0}));
    });
  });
}

}  // namespace chorus::kernel
