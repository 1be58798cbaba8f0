#include <chorus/tensor/kernels/pointwise.h>

#include <chorus/tensor/kernels/cuda/column_sums.cuh>

namespace chorus::kernel {
namespace {

template <class T>
struct Element {
  const T* x;
  std::int64_t n;
  __device__ auto operator()(std::int64_t r, std::int64_t c) const { return cuda::widen(x[r * n + c]); }
};

}  // namespace

void column_sum(Cuda device, const Tensor& x, bool add, Tensor& sums) {
  dispatch_floating(x.dtype(), "column_sum", [&]<class T>() {
    using C = compute_type<T>;
    cuda::column_sums<C>(device, "column_sum", x.context(), Element<cuda::device_type<T>>{cuda::constant<T>(x), x.cols()},
                         x.rows(), x.cols(), add, sums.as<C>());
  });
}

}  // namespace chorus::kernel
