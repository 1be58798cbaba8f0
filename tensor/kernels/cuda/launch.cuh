// Checks and launch shapes shared by the CUDA kernels.
#pragma once
#include <chorus/tensor/tensor.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace chorus::cuda {

inline void check(cudaError_t status, At at) {
  require(status == cudaSuccess, at, "CUDA reports ", cudaGetErrorName(status), ": ", cudaGetErrorString(status));
}

/// The stream of a tag, after making its device the thread's current one.
inline cudaStream_t enter(Cuda device, At at) {
  check(cudaSetDevice(device.index), at);
  return static_cast<cudaStream_t>(device.stream);
}

/// The type that device code uses for an element: same bits, with arithmetic conversions.
template <class T>
struct DeviceType {
  using type = T;
};
template <>
struct DeviceType<bf16> {
  using type = __nv_bfloat16;
};
template <class T>
using device_type = typename DeviceType<T>::type;

/// The elements of a tensor as device code sees them.
template <class T>
device_type<T>* elements(const Tensor& t) {
  return reinterpret_cast<device_type<T>*>(t.as<T>());
}

template <class T>
const device_type<T>* constant(const Tensor& t) {
  return elements<T>(t);
}

template <class T>
struct ComputeType {
  using type = float;
};
template <>
struct ComputeType<double> {
  using type = double;
};
/// What sums and element-wise arithmetic on a device type are done in.
template <class T>
using compute = typename ComputeType<T>::type;

template <class T>
__device__ compute<T> widen(T x) {
  return static_cast<compute<T>>(x);
}
template <class T>
__device__ T narrow(float x) {
  return static_cast<T>(x);
}
template <class T>
__device__ T narrow(double x) {
  return static_cast<T>(x);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __nv_bfloat16 narrow<__nv_bfloat16>(double x) {
  return __float2bfloat16_rn(static_cast<float>(x));
}

inline constexpr int block_threads = 256;
/// Blocks for n items of work: enough to fill any GPU, few enough that the grid-stride loop amortises its start.
inline unsigned grid(std::int64_t n) {
  return static_cast<unsigned>(std::min<std::int64_t>((n + block_threads - 1) / block_threads, 132 * 16));
}

/// Sum over a block in a fixed order, given to every thread. `shared` holds 32 values; blockDim.x is a multiple of 32.
template <class C>
__device__ C block_sum(C value, C* shared) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  const int warps = static_cast<int>(blockDim.x) / 32;
  __syncthreads();  // the previous sum has been read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  C total = 0;
  for (int w = 0; w < warps; ++w) total += shared[w];
  return total;
}

}  // namespace chorus::cuda
