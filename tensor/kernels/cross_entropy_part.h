// Cross-entropy of rows of logits of which only some classes lie here, in two halves: between them what all parts have found is
// brought together.
#pragma once
#include <chorus/tensor/ops/linear_cross_entropy.h>

namespace chorus::kernel {

/// Of the classes here. `logits` [R, V] (f32 or f64, V may be 0) become exponentials relative to the row's largest here.
/// labels[r] is the label's column, or -1 where it lies elsewhere.
void row_statistics(Cpu, Tensor& logits, std::span<const std::int32_t> labels, std::span<RowStatistics> statistics);

/// What `cross_entropy` gives, with smoothing over `classes`: the losses from the statistics of all parts, the same in every
/// part, and with `gradient` [R, V] (any floating type, may be `exponentials` itself) that of the logits here. `exponentials`
/// and `own` are what `row_statistics` left.
void cross_entropy_part(Cpu, const Tensor& exponentials, std::span<const std::int32_t> labels,
                        std::span<const RowStatistics> own, std::span<const RowStatistics> all, std::int64_t classes,
                        double smoothing, Tensor* gradient, std::span<double> losses);

}  // namespace chorus::kernel
