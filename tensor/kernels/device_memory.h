// Memory of a device: the same calls for the CPU and for CUDA (cuda/device_memory.cu, or cuda/no_cuda.cpp where it is not
// built).
#pragma once
#include <chorus/core/memory.h>
#include <chorus/tensor/device.h>

#include <cstring>
#include <string>

namespace chorus::kernel {

inline void* allocate(Cpu, Memory& memory, std::size_t bytes, Category category) { return memory.allocate(bytes, category); }
inline void free(Cpu, Memory& memory, void* block, std::size_t bytes, Category category) noexcept {
  memory.free(block, bytes, category);
}
inline void set_zero(Cpu, void* target, std::size_t bytes) {
  if (bytes) std::memset(target, 0, bytes);
}
inline void copy(Cpu, const void* source, void* target, std::size_t bytes) {
  if (bytes) std::memcpy(target, source, bytes);
}
inline void copy_from_host(Cpu cpu, const void* source, void* target, std::size_t bytes) { copy(cpu, source, target, bytes); }
inline void copy_to_host(Cpu cpu, const void* source, void* target, std::size_t bytes) { copy(cpu, source, target, bytes); }

void* allocate(Cuda, Memory& memory, std::size_t bytes, Category category);
void free(Cuda, Memory& memory, void* block, std::size_t bytes, Category category) noexcept;
void set_zero(Cuda, void* target, std::size_t bytes);
void copy(Cuda, const void* source, void* target, std::size_t bytes);
void copy_from_host(Cuda, const void* source, void* target, std::size_t bytes);
void copy_to_host(Cuda, const void* source, void* target, std::size_t bytes);

/// Whether this build can run on CUDA devices, and what it would use ("CUDA 13.0, 1 device: ..." or why not).
struct CudaStatus {
  bool built = false;
  int devices = 0;
  std::string text;
};
CudaStatus cuda_status();

}  // namespace chorus::kernel
