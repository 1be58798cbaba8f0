// What the trainer and the plan of a run make of the configuration's data alike.
#pragma once
#include <chorus/apps/run_config.h>
#include <chorus/apps/training_data.h>
#include <chorus/io/samples.h>

namespace chorus {

/// What the run trains on; see `read_usable`.
UsableEntries training_entries(const RunConfig& config, const Say& say);

/// The batches of a phase. `maker` must outlive the planner.
BatchPlanner make_planner(const RunConfig& config, const PhaseConfig& phase, const SampleMaker& maker);

/// What to say where `idle` of `ranks` data-parallel ranks have no sample in a batch of `samples` of a phase: the keys to
/// change.
std::string idle_ranks_text(const RunConfig& config, std::int64_t phase, std::int64_t idle, int ranks, std::int64_t samples);

}  // namespace chorus
