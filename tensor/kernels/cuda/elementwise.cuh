// One kernel for all element-wise work: y[i] = f(x0[i], x1[i], ...) in the compute type, four elements per access.
#pragma once
#include <chorus/tensor/kernels/cuda/launch.cuh>

namespace chorus::cuda {

template <class T, int n>
struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Pack {
  T values[n];
};

template <class T, int n>
bool aligned(const T* p) {
  return reinterpret_cast<std::uintptr_t>(p) % alignof(Pack<T, n>) == 0;
}

template <int n, class F, class Y, class... X>
__global__ void elementwise_kernel(F f, std::int64_t count, Y* y, const X*... x) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x, packs = count / n;
  const std::int64_t first = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::int64_t p = first; p < packs; p += step) {
    Pack<Y, n> out;
    [&](const Pack<X, n>... in) {
#pragma unroll
      for (int i = 0; i < n; ++i) out.values[i] = narrow<Y>(f(widen(in.values[i])...));
    }(reinterpret_cast<const Pack<X, n>*>(x)[p]...);
    reinterpret_cast<Pack<Y, n>*>(y)[p] = out;
  }
  for (std::int64_t i = packs * n + first; i < count; i += step) y[i] = narrow<Y>(f(widen(x[i])...));
}

/// Launches y = f(x...) over count elements. y may be one of the x: every element is read before it is written.
template <class F, class Y, class... X>
void elementwise(Cuda device, At at, F f, std::int64_t count, Y* y, const X*... x) {
  if (count == 0) return;
  const cudaStream_t stream = enter(device, at);
  if (aligned<Y, 4>(y) && (aligned<X, 4>(x) && ...))
    elementwise_kernel<4, F, Y, X...><<<grid((count + 3) / 4), block_threads, 0, stream>>>(f, count, y, x...);
  else
    elementwise_kernel<1, F, Y, X...><<<grid(count), block_threads, 0, stream>>>(f, count, y, x...);
  check(cudaGetLastError(), at);
}

}  // namespace chorus::cuda
