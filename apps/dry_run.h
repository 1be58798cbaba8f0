// Everything about a run that can be said before it: parameters, batches, memory. Nothing is written.
#pragma once
#include <chorus/apps/memory_report.h>
#include <chorus/io/batches.h>

#include <functional>
#include <string>
#include <vector>

namespace chorus {

struct PlannedParameter {
  std::string path;
  Shape shape, held;         ///< of all, and what the first rank holds of it
  std::vector<bool> trains;  ///< by phase
};

/// One phase as its batches are planned.
struct PlannedPhase {
  std::string name;
  std::int64_t steps = 0, first_epoch = 0, epochs = 0;              ///< epochs that were looked at for the heaviest batch
  bool all_epochs = true;                                           ///< false: the phase has more epochs than were looked at
  std::int64_t batches = 0, samples = 0;                            ///< of its first epoch
  std::int64_t most_samples = 0, most_frames = 0, most_tokens = 0;  ///< in a batch of it, each on its own
  std::string left_out;                                             ///< of every epoch, by reason
  RowCounts heaviest;                                               ///< rows of the heaviest microbatch of all these epochs
  MemoryReport report;                                              ///< the same memory beside the formulas
  MemoryUse fixed;                                                  ///< parameters, optimizer state
  MemoryUse step;                                                   ///< what the heaviest microbatch takes beside them
  double run_peak = 0;  ///< the most since the run's start; while phases change, the models of both are there
};

struct DryRun {
  MeshShape layout;
  std::vector<PlannedParameter> parameters;
  std::vector<PlannedPhase> phases;
  double loader_bytes = 0, cache_bytes = 0;  ///< beside tensors: batches prepared ahead; decoded sound kept, at most
};

/// Plans the run on so many ranks. Memory is that of one of them: of the first one's part of the model, and of the heaviest
/// microbatch that any of them gets. `say` is told what the trainer would be told about the data. Errors are those of the
/// trainer's start.
DryRun plan_run(const RunConfig& config, const std::function<void(const std::string&)>& say, int ranks = 1);

/// The parameter table with totals by module, the batches, and the memory by category and phase; for people.
std::string parameter_text(const DryRun& plan);
std::string batch_text(const DryRun& plan);
std::string memory_text(const DryRun& plan);
/// Each phase's MemoryReport.
std::string formula_text(const DryRun& plan);

/// The same run with at most `steps` steps in each phase, in another folder and without validation.
RunConfig shortened(RunConfig config, std::int64_t steps, const std::filesystem::path& output_dir);

/// What the steps of a phase took, and the most since the run's start.
struct MeasuredPhase {
  std::string name;
  MemoryUse use;
  double run_peak = 0;
};
/// Trains `steps` steps of each phase in a temporary folder, on threads if there are several ranks; figures are the largest
/// over ranks.
std::vector<MeasuredPhase> measure_run(const RunConfig& config, std::int64_t steps,
                                       const std::function<void(const std::string&)>& say, int ranks = 1);
/// A table of estimate and measurement with their ratios; `plan` must be of the shortened run.
std::string comparison_text(const DryRun& plan, const std::vector<MeasuredPhase>& measured);

/// `chorus train --dry-run`: prints all of it, and with measured_steps > 0 the comparison. Returns the exit status.
int run_dry_run(const Loaded<RunConfig>& loaded, std::int64_t measured_steps, int ranks);

}  // namespace chorus
