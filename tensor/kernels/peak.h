// The limit that speeds are compared with.
#pragma once
#include <chorus/tensor/tensor.h>

namespace chorus::kernel {

/// FLOP/s of the best matrix product found here and now: the fastest oneDNN product over a few large shapes, for bf16 in
/// either arithmetic (bf16 instructions, or f32 where those are slower), with the threads that OpenMP would use. f32 or bf16;
/// takes well under a second and up to 100 MB of workspace.
double measure_matrix_peak(Context& context, DType dtype);

}  // namespace chorus::kernel
