// Device memory comes from the stream-ordered pool of CUDA: a block freed on a stream is reused by later work of that stream.
#include <chorus/tensor/kernels/device_memory.h>

#include <chorus/tensor/kernels/cuda/launch.cuh>

namespace chorus::kernel {
namespace {

std::string version(int number) { return std::to_string(number / 1000) + '.' + std::to_string(number % 1000 / 10); }

}  // namespace

void* allocate(Cuda device, Memory& memory, std::size_t bytes, Category category) {
  if (bytes == 0) return nullptr;
  const cudaStream_t stream = cuda::enter(device, "allocate");
  memory.charge(bytes, category);
  void* block = nullptr;
  const cudaError_t status = cudaMallocAsync(&block, bytes, stream);
  if (status != cudaSuccess) {
    cudaGetLastError();  // an exhausted pool is reported here once and does not poison later calls
    memory.discharge(bytes, category);
    fail("allocate", bytes, " bytes of ", name(category), " on CUDA device ", device.index, ": ", cudaGetErrorString(status),
         '\n', memory.report());
  }
  return block;
}

void free(Cuda device, Memory& memory, void* block, std::size_t bytes, Category category) noexcept {
  if (block == nullptr) return;
  cudaSetDevice(device.index);
  cudaFreeAsync(block, static_cast<cudaStream_t>(device.stream));
  memory.discharge(bytes, category);
}

void set_zero(Cuda device, void* target, std::size_t bytes) {
  if (bytes) cuda::check(cudaMemsetAsync(target, 0, bytes, cuda::enter(device, "set_zero")), "set_zero");
}

void copy(Cuda device, const void* source, void* target, std::size_t bytes) {
  if (bytes) cuda::check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, cuda::enter(device, "copy")), "copy");
}

// Host memory is the caller's and pageable: both directions wait, so that it may be reused at once.
void copy_from_host(Cuda device, const void* source, void* target, std::size_t bytes) {
  if (bytes == 0) return;
  const cudaStream_t stream = cuda::enter(device, "copy_from_host");
  cuda::check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, stream), "copy_from_host");
  cuda::check(cudaStreamSynchronize(stream), "copy_from_host");
}

void copy_to_host(Cuda device, const void* source, void* target, std::size_t bytes) {
  if (bytes == 0) return;
  const cudaStream_t stream = cuda::enter(device, "copy_to_host");
  cuda::check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, stream), "copy_to_host");
  cuda::check(cudaStreamSynchronize(stream), "copy_to_host");
}

CudaStatus cuda_status() {
  int runtime = 0, devices = 0;
  cudaRuntimeGetVersion(&runtime);
  const cudaError_t status = cudaGetDeviceCount(&devices);
  std::string text = "CUDA " + version(runtime) + ", ";
  if (status != cudaSuccess) {
    cudaGetLastError();
    return {true, 0, text + "no device: " + cudaGetErrorString(status)};
  }
  text += std::to_string(devices) + (devices == 1 ? " device" : " devices");
  for (int d = 0; d < devices; ++d) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, d) != cudaSuccess) continue;
    text += std::string(d ? ", " : ": ") + properties.name + " (compute capability " + std::to_string(properties.major) + '.' +
            std::to_string(properties.minor) + ", " + std::to_string(properties.totalGlobalMem >> 30) + " GiB)";
  }
  return {true, devices, text};
}

}  // namespace chorus::kernel
