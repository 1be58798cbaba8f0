// What a step took, for its report.
#pragma once
#include <chorus/apps/trainer.h>

namespace chorus {

/// What was added to the totals of a trace since `before`. (The trace itself isn't reset: it keeps the events of many steps.)
std::map<std::string, Trace::Total> added_since(const std::map<std::string, Trace::Total>& before,
                                                std::map<std::string, Trace::Total> now);

/// Of this rank's microbatches, figure by figure.
RowCounts heaviest_rows(const LoadedBatch& batch, const RunConfig& config, const Prompt& prompt);

/// Fills the report's memory figures from this rank's `memory`, each with the largest over ranks, as its heaviest rows, and its
/// flops with their sum. `most_before`: bytes, the most before the step. All ranks call it.
void report_over_ranks(StepReport& report, const MemoryStats& memory, std::size_t most_before, Group& world);

}  // namespace chorus
