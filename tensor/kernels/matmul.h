// Matrix products: one entry, oneDNN (f32, bf16; own kernels may follow) and Eigen (f64) behind it.
#pragma once
#include <chorus/tensor/tensor.h>

#include <string>

namespace chorus::kernel {

/// Which operand is transposed. Everything is row-major, leading dimensions are the column counts.
enum class Form {
  nt,  ///< y[M, N] = a[M, K] b[N, K]^T: forward
  nn,  ///< y[M, N] = a[M, K] b[K, N]: gradient of the input
  tn,  ///< y[M, N] = a[K, M]^T b[K, N]: gradient of the weight
};
struct MatmulOptions {
  bool accumulate = false;       ///< y += instead of y =
  const Tensor* bias = nullptr;  ///< [N] of y's type or of the inputs', added to every row (nt only)
};
/// a and b have one type; y has that type or, for bf16 inputs, f32. Sizes come from the flattened rows and cols.
void matmul(Cpu, Form form, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options = {});
void matmul(Cuda, Form form, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options = {});

/// What products run on: "oneDNN 2.6.3, AVX-512 bf16, 2 threads". Says so where bf16 is computed in f32, and where the last
/// bits of results depend on the number of threads (CPUs without AVX-512).
std::string matmul_description();
/// Number of primitives this context has created so far: constant in the steady state, also when every batch has another
/// number of rows.
std::int64_t matmul_primitives_created(const Context& context);

}  // namespace chorus::kernel
