// When each label of a known text is heard, by a CTC head.
#pragma once
#include <chorus/tensor/rows.h>

#include <vector>

namespace chorus {

/// Rows of a sequence, counted from its first one, both included.
struct CtcSpan {
  std::int64_t first = 0, last = 0;
  friend bool operator==(const CtcSpan&, const CtcSpan&) = default;
};

/// The most probable path that spells the labels (Viterbi, log-probabilities in double): the rows of each label, one vector
/// per sequence, rising. Among equally probable paths the one that stays longest. A sequence without labels, with too few rows
/// for them (`ctc_frames_needed`) or with no path of a probability above 0 has none. logits [T, V], blank = V - 1.
/// O(rows x labels) time and bytes per sequence.
std::vector<std::vector<CtcSpan>> ctc_align(const Tensor& logits, const Rows& rows,
                                            const std::vector<std::vector<std::int32_t>>& labels);

}  // namespace chorus
