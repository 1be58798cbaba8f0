// Stands in for the CUDA kernels in builds without them.
#include <chorus/core/error.h>
#include <chorus/tensor/kernels/cuda/stream.h>
#include <chorus/tensor/kernels/device_memory.h>
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/kernels/norm.h>
#include <chorus/tensor/kernels/pointwise.h>

namespace chorus {

struct CudaState {};
CudaStream::CudaStream(int) { fail("CudaStream", "this build has no CUDA backend; configure with CHORUS_CUDA=ON"); }
CudaStream::~CudaStream() = default;
void CudaStream::synchronize() const {}

namespace kernel {
namespace {
[[noreturn]] void absent(const char* op) { fail(op, "this build has no CUDA backend; configure with CHORUS_CUDA=ON"); }
}  // namespace

void* allocate(Cuda, Memory&, std::size_t, Category) { absent("allocate"); }
void free(Cuda, Memory&, void*, std::size_t, Category) noexcept {}
void set_zero(Cuda, void*, std::size_t) { absent("set_zero"); }
void copy(Cuda, const void*, void*, std::size_t) { absent("copy"); }
void copy_from_host(Cuda, const void*, void*, std::size_t) { absent("copy_from_host"); }
void copy_to_host(Cuda, const void*, void*, std::size_t) { absent("copy_to_host"); }
CudaStatus cuda_status() { return {false, 0, "not built"}; }
void accumulate(Cuda, const Tensor&, bool, Tensor&) { absent("accumulate"); }
void unary(Cuda, Unary, const Tensor&, double, Tensor&) { absent("unary"); }
void binary(Cuda, Binary, const Tensor&, const Tensor&, double, Tensor&) { absent("binary"); }
void column_sum(Cuda, const Tensor&, bool, Tensor&) { absent("column_sum"); }
void rms_norm(Cuda, const Tensor&, const Tensor&, double, Tensor&, Tensor&) { absent("rms_norm"); }
void rms_norm_backward(Cuda, const Tensor&, const Tensor&, const Tensor&, const Tensor&, Tensor&, ColumnTarget) {
  absent("rms_norm");
}
void matmul(Cuda, Form, const Tensor&, const Tensor&, Tensor&, const MatmulOptions&) { absent("matmul"); }

}  // namespace kernel
}  // namespace chorus
