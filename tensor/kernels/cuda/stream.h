// A CUDA stream with what its kernels keep between calls. Free of CUDA headers, so that any translation unit can own one.
#pragma once
#include <chorus/tensor/device.h>

#include <memory>

namespace chorus {

/// Owns one stream of one GPU. The tag it gives out is valid while it lives; one thread at a time launches on it.
class CudaStream {
 public:
  /// Throws `Error` naming the device where there is none with this index, or where CUDA was not built in.
  explicit CudaStream(int index = 0);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Cuda device() const { return device_; }
  /// Waits for everything launched so far; reports errors that kernels raised meanwhile.
  void synchronize() const;

 private:
  Cuda device_;
  std::unique_ptr<CudaState> state_;
};

}  // namespace chorus
