// Where tensors live. Kernels are overload sets chosen by these tags: `void rms_norm(Cpu, ...)`, `void rms_norm(Cuda, ...)`.
#pragma once
#include <variant>

namespace chorus {

struct Cpu {};
struct Cuda {
  int index = 0;
  void* stream = nullptr;  ///< a cudaStream_t
};
using Device = std::variant<Cpu, Cuda>;

}  // namespace chorus
