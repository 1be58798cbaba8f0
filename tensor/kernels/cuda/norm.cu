#include <chorus/tensor/kernels/norm.h>

#include <chorus/tensor/kernels/cuda/column_sums.cuh>

namespace chorus::kernel {
namespace {

using cuda::narrow;
using cuda::widen;

// One block per row. It reads the row twice; the second time it comes from the cache.
template <class T, class C>
__global__ void rms_norm_kernel(const T* x, const T* weight, std::int64_t n, C eps, T* y, C* rstd) {
  __shared__ C shared[32];
  const std::int64_t row = std::int64_t{blockIdx.x} * n;
  C squares = 0;
  for (std::int64_t c = threadIdx.x; c < n; c += blockDim.x) {
    const C v = widen(x[row + c]);
    squares += v * v;
  }
  const C factor = C{1} / sqrt(cuda::block_sum(squares, shared) / static_cast<C>(n) + eps);
  if (threadIdx.x == 0) rstd[blockIdx.x] = factor;
  for (std::int64_t c = threadIdx.x; c < n; c += blockDim.x)
    y[row + c] = narrow<T>(widen(x[row + c]) * factor * widen(weight[c]));
}

// dx = rstd * (weight dy) - rstd^3 / n * sum(x weight dy) * x.
template <class T, class C>
__global__ void rms_norm_dx_kernel(const T* x, const T* weight, const C* rstd, const T* dy, std::int64_t n, T* dx) {
  __shared__ C shared[32];
  const std::int64_t row = std::int64_t{blockIdx.x} * n;
  C dot = 0;
  for (std::int64_t c = threadIdx.x; c < n; c += blockDim.x) dot += widen(x[row + c]) * widen(weight[c]) * widen(dy[row + c]);
  const C factor = rstd[blockIdx.x];
  const C shift = factor * factor * factor * cuda::block_sum(dot, shared) / static_cast<C>(n);
  for (std::int64_t c = threadIdx.x; c < n; c += blockDim.x)
    dx[row + c] = narrow<T>(factor * widen(weight[c]) * widen(dy[row + c]) - shift * widen(x[row + c]));
}

template <class T, class C>
struct WeightGradient {
  const T *x, *dy;
  const C* rstd;
  std::int64_t n;
  __device__ C operator()(std::int64_t r, std::int64_t c) const { return widen(dy[r * n + c]) * widen(x[r * n + c]) * rstd[r]; }
};

}  // namespace

void rms_norm(Cuda device, const Tensor& x, const Tensor& weight, double eps, Tensor& y, Tensor& rstd) {
  if (x.numel() == 0) return;
  dispatch_floating(x.dtype(), "rms_norm", [&]<class T>() {
    using C = compute_type<T>;
    rms_norm_kernel<<<static_cast<unsigned>(x.rows()), cuda::block_threads, 0, cuda::enter(device, "rms_norm")>>>(
        cuda::constant<T>(x), cuda::constant<T>(weight), x.cols(), static_cast<C>(eps), cuda::elements<T>(y), rstd.as<C>());
    cuda::check(cudaGetLastError(), "rms_norm");
  });
}

void rms_norm_backward(Cuda device, const Tensor& x, const Tensor& weight, const Tensor& rstd, const Tensor& dy, Tensor& dx,
                       ColumnTarget dweight) {
  dispatch_floating(x.dtype(), "rms_norm", [&]<class T>() {
    using C = compute_type<T>;
    using D = cuda::device_type<T>;
    if (x.numel() > 0) {
      rms_norm_dx_kernel<<<static_cast<unsigned>(x.rows()), cuda::block_threads, 0, cuda::enter(device, "rms_norm")>>>(
          cuda::constant<T>(x), cuda::constant<T>(weight), static_cast<const C*>(rstd.as<C>()), cuda::constant<T>(dy), x.cols(),
          cuda::elements<T>(dx));
      cuda::check(cudaGetLastError(), "rms_norm");
    }
    if (dweight.sums)
      cuda::column_sums<C>(device, "rms_norm", x.context(),
                           WeightGradient<D, C>{cuda::constant<T>(x), cuda::constant<T>(dy), rstd.as<C>(), x.cols()}, x.rows(),
                           x.cols(), dweight.add, dweight.sums->as<C>());
  });
}

}  // namespace chorus::kernel
