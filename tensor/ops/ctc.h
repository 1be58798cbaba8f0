#pragma once
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/rows.h>

namespace chorus {

/// Frames that CTC needs for these labels: their number plus one for each adjacent equal pair.
std::int64_t ctc_frames_needed(std::span<const std::int32_t> labels);

/// scale * sum over feasible sequences of -log P(labels | frames) (Graves et al. 2006), log-domain forward-backward in the
/// compute type; a wide tensor of shape (). logits [T, V], blank = V - 1, labels i32 [sum of label counts], label_offsets
/// i32 [sequences + 1]. A sequence with fewer frames than `ctc_frames_needed` adds nothing.
Tensor ctc_loss(const Tensor& logits, const Rows& rows, const Tensor& labels, const Tensor& label_offsets, double scale);

}  // namespace chorus
