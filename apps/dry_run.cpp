#include <chorus/apps/dry_run.h>
#include <chorus/apps/run_data.h>
#include <chorus/apps/trainer.h>
#include <chorus/core/cpu.h>
#include <chorus/models/salm/plan.h>
#include <chorus/nn/path_patterns.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>

namespace chorus {
namespace {

constexpr std::int64_t most_samples_planned = 2'000'000;  // of a phase; seconds of planning

/// A microbatch that may be the heaviest of its phase.
struct Candidate {
  RowCounts rows;
  std::vector<SampleShape> samples;
  bool accumulates = false;
};

/// The heaviest microbatches by rows of the encoder, of the decoder, and by the values that all layers keep of their rows;
/// apart from each other those of steps with one microbatch, and those that may find gradients of an earlier one.
class Heaviest {
 public:
  Heaviest(const RunConfig& config, const PhaseConfig& phase) {
    const auto& e = config.model.encoder;
    const auto& l = config.model.llm;
    // About what a row leaves behind in a conformer block and in a decoder block.
    encoder_weight_ = 40.0 * e.layers * e.d_model;
    decoder_weight_ = phase.llm_weight > 0 ? l.num_hidden_layers * (10.0 * l.hidden_size + 4.0 * l.intermediate_size) : 0;
  }
  void add(const Candidate& candidate) {
    const auto encoder = static_cast<double>(candidate.rows.encoder), decoder = static_cast<double>(candidate.rows.decoder);
    const std::array<double, 3> weights{encoder, decoder_weight_ > 0 ? decoder : 0,
                                        encoder * encoder_weight_ + decoder * decoder_weight_};
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::size_t place = 2 * i + (candidate.accumulates ? 1 : 0);
      if (weights[i] <= best_[place]) continue;
      best_[place] = weights[i];
      kept_[place] = candidate;
    }
  }
  /// Without repeats.
  std::vector<Candidate> candidates() const {
    std::vector<Candidate> out;
    for (const auto& one : kept_) {
      if (one.samples.empty()) continue;
      // One that finds gradients of an earlier microbatch needs no less than the same without.
      const auto covers = [](const Candidate& a, const Candidate& b) {
        return a.samples == b.samples && (a.accumulates || !b.accumulates);
      };
      if (std::any_of(out.begin(), out.end(), [&](const Candidate& other) { return covers(other, one); })) continue;
      std::erase_if(out, [&](const Candidate& other) { return covers(one, other); });
      out.push_back(one);
    }
    return out;
  }

 private:
  double encoder_weight_ = 0, decoder_weight_ = 0;
  std::array<double, 6> best_{};
  std::array<Candidate, 6> kept_;
};

void add_microbatches(const GlobalBatch& batch, const RunConfig& config, const Prompt& prompt, int dp, Heaviest& heaviest) {
  const auto& loader = config.loader;
  const int count = microbatch_count(batch, dp, loader.micro_batch_size, loader.micro_batch_frames);
  for (const auto& of_rank : deal(batch, dp, count, static_cast<int>(loader.micro_batch_size))) {
    for (const auto& indices : of_rank) {
      Candidate candidate;
      candidate.accumulates = count > 1;
      for (const int i : indices)
        candidate.samples.push_back({batch[static_cast<std::size_t>(i)].frames, batch[static_cast<std::size_t>(i)].tokens});
      candidate.rows = row_counts(config, prompt, candidate.samples);
      heaviest.add(candidate);
    }
  }
}

std::vector<PlannedParameter> planned_parameters(const RunConfig& config, const Tokenizer& tokenizer, const MeshShape& layout) {
  Salm declared(sized_config(config, tokenizer), tokenizer.size() + 1);
  Mesh mesh(layout, 0);
  apply(salm_plan(declared.config, mesh, config.parallel.sequence_parallel), declared, mesh);
  std::vector<PlannedParameter> out;
  std::vector<std::string> paths;
  for_each_param(declared, [&](const std::string& path, const Param& param) {
    out.push_back({path, param.global, param.box.size, {}});
    paths.push_back(path);
  });
  for (std::size_t i = 0; i < config.phases.size(); ++i) {
    const auto& phase = config.phases[i];
    const std::string key = "phases[" + std::to_string(i) + "].";
    const PathPatterns freeze(key + "freeze_params", phase.freeze_params, paths),
        prevent(key + "prevent_freeze_params", phase.prevent_freeze_params, paths);
    for (auto& parameter : out) parameter.trains.push_back(!freeze.match(parameter.path) || prevent.match(parameter.path));
  }
  return out;
}

}  // namespace

DryRun plan_run(const RunConfig& config, const std::function<void(const std::string&)>& say, int ranks) {
  DryRun plan;
  plan.layout = mesh_shape(config.parallel.sizes(), ranks);
  // Kernels' scratch is per thread.
  omp_set_num_threads(config.trainer.threads > 0 ? config.trainer.threads : std::max(1, compute_threads() / ranks));
  const UsableEntries usable = training_entries(config, say);
  const auto& entries = usable.entries;
  const Tokenizer tokenizer(make_tokenizer(config, entries));
  const Prompt prompt(config.prompt, tokenizer, config.model.perception);
  FeatureConfig raw = config.features;
  raw.normalize = "none";  // lengths need no statistics
  const Frontend frontend(raw);
  const SampleMaker maker(entries, frontend, tokenizer,
                          {.seed = 0, .training = false, .content = config.content(), .spec_augment = {}, .cache_bytes = 0});

  plan.parameters = planned_parameters(config, tokenizer, plan.layout);
  std::int64_t epoch = 0, largest_batch = 0;
  for (const PhaseConfig& phase : config.phases) {
    const BatchPlanner planner = make_planner(config, phase, maker);
    DropCounts drops = usable.drops;
    drops += planner.drops();
    PlannedPhase out{.name = phase.name,
                     .steps = phase.steps,
                     .first_epoch = epoch,
                     .left_out = drops.report(),
                     .heaviest = {},
                     .report = {},
                     .fixed = {},
                     .step = {}};
    Heaviest heaviest(config, phase);
    std::int64_t left = phase.steps, planned = 0;
    for (; left > 0 && planned < most_samples_planned; ++epoch, ++out.epochs) {
      const EpochPlan batches = planner.epoch(epoch);
      for (const auto& batch : batches.batches) {
        std::int64_t frames = 0, tokens = 0;
        for (const auto& sample : batch) frames += sample.frames, tokens += sample.tokens;
        if (out.epochs == 0) {
          ++out.batches;
          out.samples += static_cast<std::int64_t>(batch.size());
          out.most_samples = std::max(out.most_samples, static_cast<std::int64_t>(batch.size()));
          out.most_frames = std::max(out.most_frames, frames);
          out.most_tokens = std::max(out.most_tokens, tokens);
        }
        largest_batch = std::max(largest_batch, frames);
        planned += static_cast<std::int64_t>(batch.size());
        if (left-- > 0) add_microbatches(batch, config, prompt, plan.layout.dp(), heaviest);
      }
    }
    out.all_epochs = left <= 0;
    // A phase starts with an epoch of its own.
    out.fixed = fixed_memory(config, phase, tokenizer, plan.layout);
    for (const Candidate& candidate : heaviest.candidates()) {
      const MemoryUse use = step_memory(config, phase, tokenizer, candidate.samples, candidate.accumulates, plan.layout);
      if (use.total > out.step.total) {
        out.heaviest = candidate.rows;
        if (phase.llm_weight <= 0) out.heaviest.decoder = out.heaviest.longest_decoder = 0;
      }
      out.step = largest(out.step, use);
    }
    out.report = memory_report(config, phase, tokenizer, plan.layout, out.heaviest, out.fixed + out.step);
    out.run_peak = out.fixed.total + out.step.total;
    if (!plan.phases.empty()) {
      const PlannedPhase& before = plan.phases.back();
      out.run_peak = std::max({out.run_peak, before.run_peak, before.fixed.total + out.fixed.total});
    }
    plan.phases.push_back(std::move(out));
  }

  const double frame_bytes = static_cast<double>(sizeof(float)) * config.features.mels;
  plan.loader_bytes =
      static_cast<double>(largest_batch) / plan.layout.dp() * frame_bytes * (config.loader.prefetch + config.loader.threads);
  if (config.model.perception) {
    double frames = 0;
    for (const auto& entry : entries)
      frames += static_cast<double>(frontend.frames(static_cast<std::int64_t>(entry.duration * config.features.sample_rate)));
    const auto speeds = static_cast<double>(config.batches.speed_factors.size());
    plan.cache_bytes = std::min(config.data.cache_gigabytes * 1e9, frames * frame_bytes * speeds);
  }
  return plan;
}

RunConfig shortened(RunConfig config, std::int64_t steps, const std::filesystem::path& output_dir) {
  require(steps > 0, "dry run", steps, " steps to measure; at least 1 is needed");
  config.trainer.output_dir = output_dir;
  config.trainer.val_check_interval = config.trainer.checkpoint_every_n_steps = config.trainer.stop_after_steps = 0;
  config.trainer.trace = false;
  config.data.validation.clear();
  for (auto& phase : config.phases) {
    phase.steps = std::min(phase.steps, steps);
    phase.schedule.warmup_steps = std::min(phase.schedule.warmup_steps, phase.steps);
    phase.schedule.decay_steps = std::min(phase.schedule.decay_steps, phase.steps);
  }
  return config;
}

std::vector<MeasuredPhase> measure_run(const RunConfig& config, std::int64_t steps,
                                       const std::function<void(const std::string&)>& say, int ranks) {
  struct Temporary {
    std::filesystem::path path = std::filesystem::temp_directory_path() / ("chorus-dry-run." + std::to_string(getpid()));
    ~Temporary() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } const folder;
  RunConfig run = shortened(config, steps, folder.path);
  use_folders_that_are_there(run.trainer);
  std::vector<MeasuredPhase> out;
  std::int64_t phase_end = 0;
  TrainerHooks hooks;
  hooks.message = say;
  hooks.step = [&](const StepReport& report) {
    if (phase_end < report.step) {
      out.push_back({.name = report.phase, .use = {}});
      phase_end += run.phases[out.size() - 1].steps;
    }
    MemoryUse use;
    for (std::size_t i = 0; i < category_count; ++i) use.of[i] = static_cast<double>(report.memory_peak_of[i]);
    use.total = static_cast<double>(report.memory_step_peak);
    out.back().use = largest(out.back().use, use);
    out.back().run_peak = static_cast<double>(report.memory_peak);
  };
  train_on_threads(run, hooks, ranks);
  return out;
}

}  // namespace chorus
