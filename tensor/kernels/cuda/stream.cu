#include <chorus/tensor/kernels/cuda/state.h>
#include <chorus/tensor/kernels/device_memory.h>

#include <chorus/tensor/kernels/cuda/launch.cuh>

namespace chorus {
namespace {

Cuda open(int index) {
  int devices = 0;
  const cudaError_t status = cudaGetDeviceCount(&devices);
  require(status == cudaSuccess && index >= 0 && index < devices, "CudaStream", "device ", index, " of ",
          status == cudaSuccess ? devices : 0, " (", kernel::cuda_status().text, ")");
  cuda::check(cudaSetDevice(index), "CudaStream");
  // Freed blocks stay in the pool of the device: returning them at every synchronisation would cost a mapping each time.
  cudaMemPool_t pool = nullptr;
  cuda::check(cudaDeviceGetDefaultMemPool(&pool, index), "CudaStream");
  std::uint64_t keep = UINT64_MAX;
  cuda::check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "CudaStream");
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "CudaStream");
  return {index, stream, nullptr};
}

}  // namespace

CudaState::CudaState(Cuda device) : device(device) {
  const cudaStream_t stream = cuda::enter(device, "CudaState");
  const cublasStatus_t status = cublasLtCreate(&blas);
  require(status == CUBLAS_STATUS_SUCCESS, "CudaState", "cuBLASLt reports ", cublasLtGetStatusString(status));
  const cudaError_t memory = cudaMallocAsync(&workspace, workspace_bytes, stream);
  if (memory != cudaSuccess) cublasLtDestroy(blas);
  cuda::check(memory, "CudaState");
}

CudaState::~CudaState() {
  cudaSetDevice(device.index);
  cudaFreeAsync(workspace, static_cast<cudaStream_t>(device.stream));
  cublasLtDestroy(blas);
}

CudaStream::CudaStream(int index) : device_(open(index)) {
  try {
    state_ = std::make_unique<CudaState>(device_);
  } catch (...) {
    cudaStreamDestroy(static_cast<cudaStream_t>(device_.stream));
    throw;
  }
  device_.state = state_.get();
}

CudaStream::~CudaStream() {
  cudaSetDevice(device_.index);
  const auto stream = static_cast<cudaStream_t>(device_.stream);
  cudaStreamSynchronize(stream);
  state_.reset();
  cudaStreamDestroy(stream);
}

void CudaStream::synchronize() const { cuda::check(cudaStreamSynchronize(cuda::enter(device_, "synchronize")), "synchronize"); }

}  // namespace chorus
