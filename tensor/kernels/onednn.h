// All that the project uses of oneDNN, for its 2.x and 3.x interfaces: one product at a time on plain memory.
#pragma once
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/tensor.h>

#include <compare>
#include <optional>
#include <string>

namespace chorus::kernel::onednn {

/// One product; equal descriptions share one primitive.
struct Product {
  Form form;
  std::int64_t m, n, k;       ///< all at least 1
  DType in, out;              ///< f32 -> f32, bf16 -> bf16 or bf16 -> f32
  bool accumulate = false;    ///< y += instead of y =
  std::optional<DType> bias;  ///< type of bias[n], where there is one
  friend auto operator<=>(const Product&, const Product&) = default;
};

/// Runs it. The primitive is created (0.25 ms) when the context meets the description for the first time. Scratch memory
/// comes from the context, so that it is pooled and accounted for.
void product(Context& context, const Product& what, const void* a, const void* b, const void* bias, void* y);

std::int64_t primitives_created(const Context& context);

/// Whether the CPU has instructions for bf16 products (and oneDNN may use them).
bool has_bf16();
/// Whether bf16 products run on the CPU's own bf16 instructions. False where they would be slower than converting both
/// operands to f32 first: without such instructions, and on Intel CPUs that have AVX512-BF16 but no AMX (their vdpbf16ps
/// does a quarter of the instructions per second of vfmadd: 86 against 165 GFLOP/s per core on Emerald Rapids without AMX).
bool native_bf16();

/// Whether the processor has AVX-512 (F, BW, DQ, VL) and oneDNN may use it.
bool has_avx512();
/// True below AVX-512, where oneDNN splits contractions among threads as it sees fit.
bool bits_depend_on_threads();

/// "oneDNN 2.6.3, AVX-512 bf16".
std::string description();

}  // namespace chorus::kernel::onednn
