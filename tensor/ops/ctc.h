// Connectionist temporal classification: loss, greedy decoding and what a compressor needs.
#pragma once
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/rows.h>

#include <vector>

namespace chorus {

/// Frames that CTC needs for these labels: their number plus one for each adjacent equal pair.
std::int64_t ctc_frames_needed(std::span<const std::int32_t> labels);

/// scale * sum over feasible sequences of -log P(labels | frames) (Graves et al. 2006), forward-backward in double for every
/// type; a wide tensor of shape (). logits [T, V], blank = V - 1, labels i32 [sum of label counts] in [0, V - 1),
/// label_offsets i32 [sequences + 1]. A sequence with fewer frames than `ctc_frames_needed` adds nothing, nor does it get a
/// gradient. NaN among the logits of a sequence gives NaN; labels of probability 0 give infinity.
/// The gradient [T, V] is made with the loss and kept for backward, as the logits need not be; without recording it isn't made.
Tensor ctc_loss(const Tensor& logits, const Rows& rows, const Tensor& labels, const Tensor& label_offsets, double scale);

/// Greedy transcripts, one per sequence: the most probable symbol of each frame (the first among equals), runs collapsed,
/// blanks (V - 1) dropped.
std::vector<std::vector<std::int32_t>> ctc_greedy(const Tensor& logits, const Rows& rows);

/// Frames grouped by what CTC would say there: maximal runs of one most probable symbol, never across sequences.
/// `gather_rows(segment_mean(x, runs.offsets), runs.kept)` gives one row for each run that is not blank; a sequence in which
/// every run is blank keeps them all, so only sequences without frames have none.
struct CtcRuns {
  Tensor offsets;                               ///< i32 [runs + 1]: run r owns rows [offsets[r], offsets[r + 1])
  Tensor kept;                                  ///< i32 [kept runs]: their numbers, rising
  std::vector<std::int64_t> kept_per_sequence;  ///< lengths of what is kept, for `with_lengths`
};
CtcRuns ctc_runs(const Tensor& logits, const Rows& rows);

}  // namespace chorus
