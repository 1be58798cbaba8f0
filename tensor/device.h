// Where tensors live. Kernels are overload sets chosen by these tags: `void rms_norm(Cpu, ...)`, `void rms_norm(Cuda, ...)`.
#pragma once
#include <variant>

namespace chorus {

struct Cpu {};
struct CudaState;
struct Cuda {
  int index = 0;
  void* stream = nullptr;      ///< a cudaStream_t
  CudaState* state = nullptr;  ///< what products keep between calls; owned by the `CudaStream` that made this tag
};
using Device = std::variant<Cpu, Cuda>;

}  // namespace chorus
