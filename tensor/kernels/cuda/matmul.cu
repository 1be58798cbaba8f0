// Matrix products through cuBLASLt. It thinks in columns: our row-major y = a b is its y^T = b^T a^T, so the operands swap and
// every leading dimension is the column count.
#include <chorus/tensor/kernels/cuda/state.h>
#include <chorus/tensor/kernels/matmul.h>

#include <chorus/tensor/kernels/cuda/elementwise.cuh>

namespace chorus::kernel {
namespace {

void check(cublasStatus_t status, const char* what) {
  require(status == CUBLAS_STATUS_SUCCESS, "matmul", what, ": cuBLASLt reports ", cublasLtGetStatusString(status));
}

/// Owns one cuBLASLt descriptor.
template <class Handle, auto destroy>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle) destroy(handle);
  }
};
using Descriptor = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t data_type(DType t) {
  switch (t) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f64: return CUDA_R_64F;
    default: fail("matmul", "does not take ", t);
  }
}

template <class V>
void set(const Descriptor& descriptor, cublasLtMatmulDescAttributes_t attribute, const V& value) {
  check(cublasLtMatmulDescSetAttribute(descriptor.handle, attribute, &value, sizeof(value)), "descriptor");
}

/// An array of rows x cols in our order, which cuBLASLt reads as cols x rows.
void describe(MatrixLayout& layout, DType type, std::int64_t rows, std::int64_t cols) {
  check(cublasLtMatrixLayoutCreate(&layout.handle, data_type(type), static_cast<std::uint64_t>(cols),
                                   static_cast<std::uint64_t>(rows), cols),
        "layout");
}

template <class Y, class B>
__global__ void add_bias_kernel(std::int64_t count, std::int64_t cols, Y* y, const B* bias) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    y[i] = cuda::narrow<Y>(cuda::widen(y[i]) + cuda::widen(bias[i % cols]));
}

void add_bias(Cuda device, const Tensor& bias, Tensor& y) {
  dispatch_floating(y.dtype(), "matmul", [&]<class Y>() {
    dispatch_floating(bias.dtype(), "matmul", [&]<class B>() {
      add_bias_kernel<<<cuda::grid(y.numel()), cuda::block_threads, 0, cuda::enter(device, "matmul")>>>(
          y.numel(), y.cols(), cuda::elements<Y>(y), cuda::elements<B>(bias));
      cuda::check(cudaGetLastError(), "matmul");
    });
  });
}

}  // namespace

void matmul(Cuda device, Form form, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options) {
  const bool a_transposed = form == Form::tn, b_transposed = form == Form::nt;
  const std::int64_t m = a_transposed ? a.cols() : a.rows(), k = a_transposed ? a.rows() : a.cols();
  const std::int64_t n = b_transposed ? b.rows() : b.cols(), k_of_b = b_transposed ? b.cols() : b.rows();
  require(k == k_of_b && y.rows() == m && y.cols() == n, "matmul", "a is ", a, ", b is ", b, ", y is ", y, ", form ",
          form == Form::nt   ? "nt"
          : form == Form::nn ? "nn"
                             : "tn");
  require(a.dtype() == b.dtype() && (y.dtype() == a.dtype() || (a.dtype() == DType::bf16 && y.dtype() == DType::f32)), "matmul",
          "a is ", a, ", b is ", b, ", y is ", y, "; a and b need one type, y that type or f32 for bf16");
  require(!options.bias || (form == Form::nt && options.bias->numel() == n), "matmul", "a bias of ", n,
          " values is added in form nt only");
  require(device.state != nullptr, "matmul", "the device tag does not come from a CudaStream");
  if (m == 0 || n == 0) return;
  const cudaStream_t stream = cuda::enter(device, "matmul");
  if (k == 0) {
    if (!options.accumulate) cuda::check(cudaMemsetAsync(y.data(), 0, y.bytes(), stream), "matmul");
    if (options.bias) add_bias(device, *options.bias, y);
    return;
  }

  // The bias epilogue takes y's type, in single precision products; other combinations get a pass of their own.
  const bool epilogue = options.bias && options.bias->dtype() == y.dtype() && y.dtype() != DType::f64;
  const bool f64 = a.dtype() == DType::f64;
  Descriptor descriptor;
  check(cublasLtMatmulDescCreate(&descriptor.handle, f64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                 f64 ? CUDA_R_64F : CUDA_R_32F),
        "descriptor");
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSA, b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(descriptor, CUBLASLT_MATMUL_DESC_TRANSB, a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (epilogue) {
    set(descriptor, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(descriptor, CUBLASLT_MATMUL_DESC_BIAS_POINTER, options.bias->data());
  }
  MatrixLayout first, second, result;
  describe(first, b.dtype(), b.rows(), b.cols());
  describe(second, a.dtype(), a.rows(), a.cols());
  describe(result, y.dtype(), m, n);

  CudaState& state = *device.state;
  // Views start anywhere: an algorithm is chosen for the alignment that all operands share, up to 256 bytes.
  const auto bits = reinterpret_cast<std::uintptr_t>(a.data()) | reinterpret_cast<std::uintptr_t>(b.data()) |
                    reinterpret_cast<std::uintptr_t>(y.data()) | 256u;
  const auto alignment = static_cast<std::uint32_t>(bits & -bits);
  const CudaState::Problem problem{
      static_cast<std::int64_t>(form),      m,        n,        k, static_cast<std::int64_t>(a.dtype()),
      static_cast<std::int64_t>(y.dtype()), epilogue, alignment};
  auto known = state.algorithms.find(problem);
  if (known == state.algorithms.end()) {
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(&preference.handle), "preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference.handle, attribute, &value, sizeof(value)), "preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, CudaState::workspace_bytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(state.blas, descriptor.handle, first.handle, second.handle, result.handle,
                                         result.handle, preference.handle, 1, &found, &count),
          "choice of an algorithm");
    require(count == 1, "matmul", "cuBLASLt has no algorithm for m ", m, ", n ", n, ", k ", k, " of ", a.dtype(), " into ",
            y.dtype());
    known = state.algorithms.emplace(problem, found.algo).first;
  }

  const double one64 = 1, beta64 = options.accumulate ? 1 : 0;
  const float one32 = 1, beta32 = options.accumulate ? 1 : 0;
  const void* alpha = f64 ? static_cast<const void*>(&one64) : &one32;
  const void* beta = f64 ? static_cast<const void*>(&beta64) : &beta32;
  check(cublasLtMatmul(state.blas, descriptor.handle, alpha, b.data(), first.handle, a.data(), second.handle, beta, y.data(),
                       result.handle, y.data(), result.handle, &known->second, state.workspace, CudaState::workspace_bytes,
                       stream),
        "product");
  if (options.bias && !epilogue) add_bias(device, *options.bias, y);
}

}  // namespace chorus::kernel
