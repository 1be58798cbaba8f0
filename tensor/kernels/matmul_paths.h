// The ways a checked product can go. Sizes are at least 1; y has been sized by the caller.
#pragma once
#include <chorus/tensor/kernels/matmul.h>

namespace chorus::kernel {

struct MatmulSizes {
  std::int64_t m, n, k;
};

/// Through oneDNN in the operands' own types.
void matmul_native(Form form, MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options);
/// bf16 operands, converted to f32 block by block.
void matmul_widened(Form form, MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options);
/// f32 or bf16 through own loops for AVX-512; only where `avx512_loops()`.
void matmul_tiled(Form form, MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options);
/// f64, through Eigen.
void matmul_f64(Form form, MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options);

/// Rows of the contracted dim that one product of form tn takes; longer ones are summed in order. Fixed, because oneDNN
/// splits long contractions among its threads and so makes the result depend on their number: never seen at this length.
inline constexpr std::int64_t contraction_chunk = 1024;

/// The largest number of rows not above `rows` that needs no padding.
std::int64_t whole_rows(std::int64_t rows);

}  // namespace chorus::kernel
