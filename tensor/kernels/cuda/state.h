#pragma once
#include <chorus/tensor/kernels/cuda/stream.h>
#include <cublasLt.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace chorus {

/// What matrix products of one stream share: the library handle, its scratch memory, and the algorithm chosen for each problem.
/// One stream runs its kernels in order, so they can share the scratch memory.
struct CudaState {
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;  // what cuBLAS recommends for Hopper
  using Problem = std::array<std::int64_t, 8>;

  explicit CudaState(Cuda device);
  ~CudaState();
  CudaState(const CudaState&) = delete;
  CudaState& operator=(const CudaState&) = delete;

  Cuda device;
  cublasLtHandle_t blas = nullptr;
  void* workspace = nullptr;
  std::map<Problem, cublasLtMatmulAlgo_t> algorithms;
};

}  // namespace chorus
