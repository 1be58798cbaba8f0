#pragma once

namespace chorus::kernel {

/// Whether the loops of kernels/avx512 are in this build and may be used: the processor has AVX-512 (F, BW, DQ, VL), and
/// oneDNN's limit on instruction sets (ONEDNN_MAX_CPU_ISA) allows it.
bool avx512_loops();

}  // namespace chorus::kernel
