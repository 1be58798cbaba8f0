#pragma once
#include <chorus/tensor/rows.h>

#include <vector>

namespace chorus::kernel {

/// What CTC aligns: labels of sequence s are labels[offsets[s] .. offsets[s+1]). All on the host.
struct CtcTargets {
  std::span<const std::int32_t> labels, offsets;
  std::span<const std::int32_t> of(std::size_t s) const {
    return labels.subspan(static_cast<std::size_t>(offsets[s]), static_cast<std::size_t>(offsets[s + 1] - offsets[s]));
  }
};

/// -log P(labels | frames) of every sequence, 0 where feasible[s] is 0. logits [T, V], blank = V - 1. `gradient` is empty or
/// [T, V] of the logits' type and receives scale * (softmax - posterior), zeros where infeasible. A sequence with a NaN or
/// +infinity among its logits gives NaN; one whose labels have probability 0 gives infinity.
std::vector<double> ctc(Cpu, const Tensor& logits, const Rows& rows, const CtcTargets& targets,
                        const std::vector<char>& feasible, double scale, Tensor& gradient);

/// Index of the largest value of each row, the first among equals.
std::vector<std::int32_t> row_argmax(Cpu, const Tensor& x);

}  // namespace chorus::kernel
