// From a run's manifests to what its batches are made of.
#pragma once
#include <chorus/apps/run_config.h>
#include <chorus/io/samples.h>

#include <functional>
#include <string>
#include <vector>

namespace chorus {

using Say = std::function<void(const std::string&)>;

/// What the run trains on: entries with known durations; those whose sound file can't be opened are told to `say`. Text is
/// taken as it is.
std::vector<ManifestEntry> training_entries(const RunConfig& config, const Say& say);

/// The batches of a phase. `maker` must outlive the planner.
BatchPlanner make_planner(const RunConfig& config, const PhaseConfig& phase, const SampleMaker& maker);

}  // namespace chorus
