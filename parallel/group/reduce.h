// The arithmetic of reductions, shared by groups of threads and of processes, so that both give the same bits.
#pragma once
#include <chorus/parallel/group/group.h>

namespace chorus {

/// out[i] = inputs[0][i] + inputs[1][i] + ... (or their maximum or minimum) for i < count, written to every one of `outputs`.
/// Added in this order; bf16 in f32 and rounded once; integers wrap around; a NaN wins maxima and minima. An output may be one
/// of the inputs, and is otherwise apart from them.
void reduce(DType dtype, Reduce how, std::span<const void* const> inputs, std::span<void* const> outputs, std::int64_t count);

}  // namespace chorus
