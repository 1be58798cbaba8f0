// The training loop as a library: it neither prints nor exits nor touches signals; its owner listens through hooks.
#pragma once
#include <chorus/apps/evaluator.h>
#include <chorus/apps/memory_report.h>
#include <chorus/parallel/group/group.h>

#include <array>
#include <atomic>
#include <functional>
#include <map>

namespace chorus {

/// The run is locked, loaded and about to take the step after `step`.
struct StartReport {
  std::int64_t step = 0, total_steps = 0;  ///< finished steps; more than 0: resumed
  std::int64_t parameters = 0;             ///< of the model, frozen ones included
  int ranks = 1;
  std::string layout = "1 rank";  ///< "TP2 SP DP2"
};

/// One optimizer step.
struct StepReport {
  std::string phase;
  std::int64_t step = 0, total_steps = 0;  ///< from 1, over all phases
  double loss = 0, llm_loss = 0, ctc_loss = 0, grad_norm = 0, lr = 0;
  std::int64_t epoch = 0, samples = 0, frames = 0, labels = 0, microbatches = 0;
  std::int64_t rows = 0;  ///< encoder rows and text items: what "tokens/s" counts
  double audio_seconds = 0, seconds = 0, data_wait = 0, flops = 0;
  /// Bytes of tensors, each figure the largest over ranks: not all need be the same rank's, so that on several ranks categories
  /// may add up to more than the total. After the step; the most since the start of the process.
  std::size_t memory = 0, memory_peak = 0;
  /// By `Category`: after the step, and the most during it (each category at its own moment).
  std::array<std::size_t, category_count> memory_of{}, memory_peak_of{};
  std::size_t memory_step_peak = 0;         ///< the most of all categories together during the step
  RowCounts heaviest;                       ///< the most rows that a microbatch of any rank has, as `row_counts` counts them
  std::map<std::string, Trace::Total> ops;  ///< of this step by name; their seconds add up to the step's
  DropCounts drops;                         ///< as TrainingResult::drops, so far
};

/// What a model makes of the validation manifest after a step.
struct EvaluationReport {
  std::string phase;
  std::int64_t step = 0;
  double seconds = 0;
  const Evaluation& evaluation;
  std::span<const TranscriptSource> sources;  ///< in the order of evaluation.entries
};

struct TrainerHooks {
  std::function<void(const std::string&)> message;
  std::function<void(const StartReport&)> start;  ///< once, before the first step; not where there is an error before
  std::function<void(const StepReport&)> step;
  std::function<void(const EvaluationReport&)> evaluation;
  std::function<void(const MemoryReport&)> memory;  ///< once in a phase, after its first steps; figures as in StepReport
  const std::atomic<bool>* stop = nullptr;          ///< set to true: save after the running step and return
};

enum class Outcome { finished, stopped, paused };

struct TrainingResult {
  Outcome outcome = Outcome::finished;
  std::int64_t step = 0;
  double train_seconds = 0;        ///< in steps, over all invocations of the run
  std::string weight_hash;         ///< XXH3-128 of all weights and buffers (f32 masters under bf16)
  std::int64_t skipped_steps = 0;  ///< over the run, that changed nothing, as their gradient or loss wasn't finite
  std::int64_t failed_saves = 0;   ///< periodic checkpoints that could not be written
  DropCounts drops;  ///< samples that failed to load, over the run, and what the last phase left out of every epoch
};

/// Trains what the configuration says, from the newest valid checkpoint of its output_dir if there is one. Errors: whatever
/// configuration or data make impossible; one step more than trainer.skip_nonfinite_steps whose gradient norm or loss is not
/// finite, naming step and samples; a last checkpoint that can't be written. A periodic one that can't be written ends nothing:
/// it is told, counted and tried again a tenth of the interval later.
TrainingResult train(const RunConfig& config, const TrainerHooks& hooks);

/// As above, one of the ranks of `world`, all of which call it with the same configuration. The first rank writes the run's
/// folder and alone reports starts, steps and evaluations; messages may come from all, those of others begin with their rank.
TrainingResult train(const RunConfig& config, const TrainerHooks& hooks, Group& world);
/// As `ranks` threads of this process. Hooks are called one at a time.
TrainingResult train_on_threads(const RunConfig& config, const TrainerHooks& hooks, int ranks);

}  // namespace chorus
