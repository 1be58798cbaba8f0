#include <chorus/apps/agreement.h>
#include <chorus/apps/check_phases.h>
#include <chorus/apps/checkpoint_fit.h>
#include <chorus/apps/init_from.h>
#include <chorus/apps/rank_threads.h>
#include <chorus/apps/replicas.h>
#include <chorus/apps/run_data.h>
#include <chorus/apps/run_lock.h>
#include <chorus/apps/step_report.h>
#include <chorus/apps/trainer.h>
#include <chorus/apps/training_data.h>
#include <chorus/apps/training_state.h>
#include <chorus/apps/whole_tensors.h>
#include <chorus/core/cpu.h>
#include <chorus/io/checkpoint.h>
#include <chorus/io/checkpoint/folder.h>
#include <chorus/models/salm/plan.h>
#include <chorus/nn/layers/norm.h>
#include <chorus/nn/path_patterns.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/solo.h>
#include <omp.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>

namespace chorus {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

MemoryOptions memory_options(const RunConfig& config) {
  MemoryOptions options;
  options.limit = static_cast<std::size_t>(config.trainer.memory_limit_gigabytes * 1e9);
  return options;
}

/// Everything of one phase: the model it trains and where its batches come from.
struct Phase {
  const PhaseConfig* config;
  std::unique_ptr<BuiltSalm> built;
  std::unique_ptr<DataParallel> data_parallel;
  Optimizer optimizer;
  std::unique_ptr<SampleMaker> maker;
  std::unique_ptr<BatchPlanner> planner;
  std::unique_ptr<Loader> loader;
};

class Trainer {
 public:
  Trainer(const RunConfig& config, const TrainerHooks& hooks, Group& world)
      : config_(agreed(config, world)),
        hooks_(hooks),
        world_(world),
        mesh_(world, mesh_shape(config.parallel.sizes(), world.size())),
        lock_(leads() ? std::make_unique<RunLock>(config.trainer.output_dir) : nullptr),
        threads_(config.trainer.threads > 0 ? config.trainer.threads : threads_of_a_rank(world)),
        context_(memory_options(config)),
        train_digest_(manifests_digest(config.data.inputs())),
        usable_(training_entries(config, leads() ? hooks.message : nullptr)),
        entries_(std::move(usable_.entries)),
        inputs_(open_inputs()),
        frontend_(config.features, inputs_.statistics),
        prompt_(config.prompt, inputs_.tokenizer, config.model.perception) {
    if (!config.data.validation.empty())
      validation_ = sources_of(
          read_usable(config.data.validation, config.data.skip_bad_lines, config.content(), leads() ? hooks.message : nullptr)
              .entries);
    if (config.model.perception && !validation_.empty()) evaluated_.chunks = chunk_options({}, config);
    if (config.parallel.tp_comm_overlap) mesh_.overlap_exchanges();
    std::int64_t listens = hooks.evaluation != nullptr;
    world.broadcast(std::span<std::int64_t>(&listens, 1), 0);
    evaluates_ = listens > 0;
    check_phases(config, entries_, frontend_, inputs_);
    context_.trace.sum(true);
    context_.trace.record(config.trainer.trace);
  }

  TrainingResult run() {
    if (world_.size() > 1)
      say(std::to_string(world_.size()) + " ranks: " + config_.parallel.layout(mesh_.shape()) + ", " +
          std::to_string(omp_get_max_threads()) + (omp_get_max_threads() == 1 ? " thread" : " threads") + " each");
    resume_or_start();
    first_step_ = progress_.step;
    if (hooks_.start)
      hooks_.start(
          {progress_.step, config_.total_steps(), parameter_count(), world_.size(), config_.parallel.layout(mesh_.shape())});
    while (true) {
      if (progress_.phase_step == phase_.config->steps) {
        if (progress_.phase + 1 == static_cast<std::int64_t>(config_.phases.size())) return finish(Outcome::finished);
        next_phase();
      }
      if (stop_asked()) return finish(Outcome::stopped);
      if (config_.trainer.stop_after_steps > 0 && progress_.step - first_step_ >= config_.trainer.stop_after_steps)
        return finish(Outcome::paused);
      const std::optional<StepReport> report = step();
      if (!report) continue;
      if (hooks_.step) hooks_.step(*report);
      const bool phase_ends = progress_.phase_step == phase_.config->steps;
      if (hooks_.memory && first_steps_.seen(*report, *phase_.config, phase_ends))
        hooks_.memory(first_steps_.report(config_, inputs_.tokenizer, mesh_.shape()));
      const auto every = [&](std::int64_t n) { return n > 0 && progress_.step % n == 0; };
      if (every(config_.parallel.check_replicas_every_n_steps))
        check_replicas(phase_.built->store, *mesh_.axis("stage").group, progress_.step);
      if (every(config_.trainer.val_check_interval)) evaluate();
      if (every(config_.trainer.checkpoint_every_n_steps) || progress_.step == retry_at_) try_to_save();
    }
  }

 private:
  static const RunConfig& agreed(const RunConfig& config, Group& world) {
    RunConfig layout;
    layout.parallel = config.parallel;
    // Ranks that share layers exchange again what they compute again, all of them.
    layout.trainer.activation_checkpointing_llm = config.trainer.activation_checkpointing_llm;
    layout.trainer.activation_checkpointing_perception = config.trainer.activation_checkpointing_perception;
    require_agreement(world, "the configuration", trajectory_toml(config) + canonical_toml(layout));
    return config;
  }

  /// Whether this rank writes what there is one of in a run.
  bool leads() const { return world_.rank() == 0; }

  /// All ranks stop after the same step, whichever of them was asked to.
  bool stop_asked() {
    std::int64_t asked = hooks_.stop && hooks_.stop->load();
    world_.all_reduce(std::span<std::int64_t>(&asked, 1), Reduce::max);
    return asked > 0;
  }

  /// A run that has checkpoints must have all its other files too: made again they might differ. What the first rank makes the
  /// others read.
  RunInputs open_inputs() {
    const auto& folder = config_.trainer.output_dir;
    if (!leads()) {
      world_.barrier();
      return load_run_inputs(folder, config_);
    }
    const bool goes_on = !step_folders(folder / "checkpoints").empty();
    if (goes_on) (void)load_run_config(folder);
    claim_run_folder(folder, config_);
    RunInputs inputs = goes_on ? load_run_inputs(folder, config_) : open_run_inputs(folder, config_, entries_);
    world_.barrier();
    return inputs;
  }

  std::filesystem::path checkpoints() const { return config_.trainer.output_dir / "checkpoints"; }
  /// What all ranks know alike is said by the first.
  void say(const std::string& text) const {
    if (leads() && hooks_.message) hooks_.message(text);
  }
  /// What this rank alone has met, or with the ranks that have the same samples.
  void say_own(const std::string& text) {
    if (mesh_.axis("tp_cp").rank == 0) say_alone(text);
  }
  void say_alone(const std::string& text) {
    if (said_.insert(text).second && hooks_.message)
      hooks_.message(leads() ? text : "rank " + std::to_string(world_.rank()) + ": " + text);
  }

  /// What comes again every epoch is said the first time.
  void say_once(const std::string& text) {
    if (said_.insert(text).second) say(text);
  }

  /// Model, optimizer and loader of phase progress_.phase, all at their start.
  Phase make_phase() {
    Phase phase;
    phase.config = &config_.phases[static_cast<std::size_t>(progress_.phase)];
    phase.built = build_salm(context_, config_, inputs_.tokenizer,
                             {phase.config->freeze_params, phase.config->prevent_freeze_params}, mesh_);
    phase.data_parallel = make_data_parallel(phase.built->store, mesh_, config_.parallel.data_parallel(), [&] {
      return loss_term(loss_without_rows(phase.built->model, context_, dtype_of_precision(config_.trainer.precision),
                                         phase.config->llm_weight, phase.config->ctc_weight),
                       mesh_);
    });
    phase.optimizer = Optimizer(config_.optimizer, phase.built->store);
    return phase;
  }

  void start_loader() {
    const PhaseConfig& phase = *phase_.config;
    SampleOptions options{.seed = config_.trainer.seed,
                          .training = true,
                          .content = config_.content(),
                          .spec_augment = phase.spec_augment.value_or(config_.spec_augment),
                          .cache_bytes = static_cast<std::size_t>(config_.data.cache_gigabytes * 1e9)};
    phase_.maker = std::make_unique<SampleMaker>(entries_, frontend_, inputs_.tokenizer, options);
    phase_.planner = std::make_unique<BatchPlanner>(make_planner(config_, phase, *phase_.maker));
    // Of the manifest and of every epoch of this phase; what fails on the way adds up over the run.
    DropCounts drops = usable_.drops;
    drops += phase_.planner->drops();
    for (const auto& [entry, why] : phase_.planner->left_out())
      say("left out: " + place(entries_[static_cast<std::size_t>(entry)]) + ": " + why);
    if (drops.total() > 0) say("left out of every epoch: " + drops.report());
    drops.failed = progress_.drops.failed;
    drops.without_ctc = progress_.drops.without_ctc;
    progress_.drops = drops;
    const auto inputs = config_.data.inputs();
    for (std::size_t i = 0; inputs.size() > 1 && i < inputs.size(); ++i)
      say(inputs[i].manifest_filepath + ": " + std::to_string(phase_.planner->mixer().shares()[i]) + " draws of every epoch");
    phase_.loader = std::make_unique<Loader>(*phase_.planner, *phase_.maker, config_.loader, progress_.cursor, -1,
                                             mesh_.axis("dp").rank, mesh_.axis("dp").size);
  }

  void resume_or_start() {
    const auto checkpoint = find_checkpoint(checkpoints(), [this](const std::string& line) { say(line); });
    require_agreement(world_, "the content of the training manifests", train_digest_);
    require_agreement(world_, "what can be read of the training or validation data", usable_digest(entries_, validation_));
    require_agreement(world_, "the tokenizer or the statistics", tokenizer_digest(inputs_) + statistics_digest(inputs_));
    require_agreement(world_, "the newest intact checkpoint", checkpoint ? checkpoint->manifest().state.dump() : "none");
    if (checkpoint) {
      progress_ = progress_from_json(checkpoint->manifest().state);
      const auto inputs = config_.data.inputs();
      require(progress_.train_digest == train_digest_, "resume", inputs[0].manifest_filepath,
              inputs.size() > 1 ? " and the other inputs aren't the manifests" : " isn't the manifest", " that the run in ",
              config_.trainer.output_dir.string(), " was started with; choose another trainer.output_dir");
      require(progress_.phase >= 0 && progress_.phase < static_cast<std::int64_t>(config_.phases.size()), "resume",
              checkpoint->folder().string(), " is in phase ", progress_.phase, " of ", config_.phases.size());
      phase_ = make_phase();
      require_same_inputs(progress_, inputs_, config_.trainer.output_dir);
      read_parts(*checkpoint, named_tensors(*phase_.built, phase_.optimizer));
      phase_.built->store.masters_to_values();
      phase_.data_parallel->values_loaded();
      phase_.optimizer.set_steps(progress_.phase_step);
      saved_step_ = progress_.step;
      say("resumed from " + checkpoint->folder().string() + " at step " + std::to_string(progress_.step));
    } else {
      const auto damaged = step_folders(checkpoints());
      require(damaged.empty(), "resume", "none of the ", damaged.size(), " checkpoints in ", checkpoints().string(),
              " is intact; remove them to start again from the first step");
      progress_.train_digest = train_digest_;
      phase_ = make_phase();
      init_from_runs(config_, inputs_, *phase_.built, [this](const std::string& line) { say(line); });
      phase_.data_parallel->values_loaded();
    }
    progress_.tokenizer_digest = tokenizer_digest(inputs_);
    progress_.statistics_digest = statistics_digest(inputs_);
    announce();
    if (progress_.phase_step < phase_.config->steps) start_loader();
  }

  void next_phase() {
    ++progress_.phase;
    progress_.phase_step = 0;
    // Batches may be made otherwise now: a phase starts with an epoch of its own.
    if (progress_.cursor.batch > 0) progress_.cursor = {progress_.cursor.epoch + 1, 0};
    phase_.data_parallel->free_gradients();  // two models are there for a moment
    Phase next = make_phase();
    phase_.loader.reset();
    phase_.data_parallel.reset();
    const std::size_t kept = keep_parameters(*phase_.built, *next.built, next.config->keep, mesh_);
    phase_ = std::move(next);
    phase_.data_parallel->values_loaded();
    say("phase " + phase_.config->name + " keeps " + std::to_string(kept) + " tensors of the phase before");
    announce();
    start_loader();
  }

  std::int64_t parameter_count() const {
    const auto& store = phase_.built->store;
    return store.trainable_count() + store.frozen_count();
  }

  void announce() const {
    const auto& store = phase_.built->store;
    say("phase " + phase_.config->name + ": " + std::to_string(phase_.config->steps) + " steps, " +
        std::to_string(store.trainable_count()) + " trainable parameters, " + std::to_string(store.frozen_count()) + " frozen");
  }

  /// The next global batch with at least one label: a batch without any is skipped by all ranks alike. A whole epoch of such
  /// batches is an error: there is nothing to train on, e.g. because the sound files are gone.
  LoadedBatch next_batch(LossCounts& counts) {
    const std::int64_t epoch = progress_.cursor.epoch;
    while (true) {
      auto batch = phase_.loader->next();
      require(batch.has_value(), "loader", "ended without an end");
      require(batch->cursor.epoch <= epoch + 1, "train", "no batch of epoch ", epoch + 1,
              " has a label; dropped so far: ", progress_.drops.report());
      progress_.cursor = batch->next;
      for (const auto& line : agree_on_failures(*batch, *mesh_.axis("tp_cp").group)) say_alone("dropped a sample: " + line);
      counts = {};
      std::int64_t without_ctc = 0;
      for (const auto& micro : batch->microbatches) {
        for (std::size_t i = 0; i < micro.ids.size(); ++i) {
          const LossCounts own = loss_counts(micro.frames_of[i], micro.tokens[i], config_, prompt_);
          if (phase_.config->ctc_weight > 0 && own.ctc_targets == 0 && !micro.tokens[i].empty())
            ++without_ctc, tell_without_ctc(micro, i);
          counts.labels += own.labels;
          counts.ctc_targets += own.ctc_targets;
        }
      }
      // One vector of integers per step, over the ranks that have different samples.
      const std::int64_t idle = batch->counts.samples + batch->drops.failed == 0;
      std::int64_t sums[] = {counts.labels,         counts.ctc_targets,   without_ctc, batch->drops.failed,
                             batch->counts.samples, batch->counts.frames, idle};
      data_ranks().all_reduce(std::span<std::int64_t>(sums));
      counts = {sums[0], sums[1]};
      progress_.drops.without_ctc += sums[2];
      progress_.drops.failed += sums[3];
      batch->counts.samples = sums[4];
      batch->counts.frames = sums[5];
      if (sums[6] > 0 && idle_said_.insert(progress_.phase).second)
        say(idle_ranks_text(config_, progress_.phase, sums[6], data_ranks().size(), sums[3] + sums[4]));
      if ((phase_.config->llm_weight > 0 && counts.labels > 0) || (phase_.config->ctc_weight > 0 && counts.ctc_targets > 0))
        return std::move(*batch);
      say("skipped a batch without any label");
    }
  }

  void tell_without_ctc(const Microbatch& micro, std::size_t i) {
    const ManifestEntry& entry = entries_[static_cast<std::size_t>(micro.ids[i])];
    if (without_ctc_.insert(micro.ids[i]).second)
      say_own("no CTC loss: " + place(entry) + ": " + std::to_string(micro.frames_of[i]) + " feature frames are too few for " +
              std::to_string(micro.tokens[i].size()) + " tokens" +
              (phase_.config->llm_weight > 0 ? "; the decoder learns it" : ""));
  }

  Group& data_ranks() const { return *mesh_.axis("dp").group; }

  /// Empty: the batch changed nothing.
  std::optional<StepReport> step() {
    const PhaseConfig& phase = *phase_.config;
    ParamStore& store = phase_.built->store;
    const auto begin = Clock::now();
    const double waited = phase_.loader->waited();
    const auto ops_before = context_.trace.totals();
    most_memory_ = std::max(most_memory_, context_.memory.stats().peak_total);
    context_.memory.reset_peak();
    std::optional<Span> whole(std::in_place, context_.trace, "step");
    StepReport report;
    report.epoch = progress_.cursor.epoch;
    LossCounts counts;
    LoadedBatch batch = [&] {
      const Span span(context_.trace, "data");
      return next_batch(counts);
    }();
    const SalmLossOptions options{.counts = counts,
                                  .llm_weight = phase.llm_weight,
                                  .ctc_weight = phase.ctc_weight,
                                  .label_smoothing = phase.label_smoothing,
                                  .corruption = token_corruption(phase, inputs_.tokenizer)};
    const Pass pass{.training = true, .seed = config_.trainer.seed, .step = static_cast<std::uint64_t>(progress_.step)};
    phase_.data_parallel->start_step();
    double losses[2] = {};
    for (const auto& micro : batch.microbatches) {
      const SalmBatch packed = make_salm_batch(context_, micro, config_, inputs_.tokenizer, prompt_);
      const SalmLoss loss = phase_.built->model.loss(packed, options, pass);
      phase_.data_parallel->backward(loss_term(loss.total, mesh_), &micro == &batch.microbatches.back());
      losses[0] += loss.llm;
      losses[1] += loss.ctc;
    }
    phase_.data_parallel->finish_step();
    const double norm = phase_.data_parallel->norm();
    data_ranks().all_reduce(std::span<double>(losses));
    report.llm_loss = losses[0];
    report.ctc_loss = losses[1];
    report.frames = batch.counts.frames;
    report.loss = phase.llm_weight * report.llm_loss + phase.ctc_weight * report.ctc_loss;
    const auto verdict = judge_step(norm, report.loss, progress_.skipped_steps, config_.trainer.skip_nonfinite_steps);
    if (verdict == StepVerdict::stop) refuse_update(norm, report.loss, batch);
    if (verdict == StepVerdict::skip) {
      skip(norm, report.loss, std::move(batch));
      progress_.train_seconds += seconds_since(begin);
      return std::nullopt;
    }
    const double lr = learning_rate(phase.schedule, progress_.phase_step, phase.steps);
    {
      Span span(context_.trace, "optimizer");
      phase_.optimizer.step(store, lr, clip_factor(norm, config_.trainer.gradient_clip_val));
    }
    phase_.data_parallel->values_changed();
    commit_statistics(phase_.built->model);
    ++progress_.step;
    ++progress_.phase_step;

    report.phase = phase.name;
    report.step = progress_.step;
    report.total_steps = config_.total_steps();
    report.grad_norm = norm;
    report.lr = lr;
    report.samples = batch.counts.samples;
    report.labels = counts.labels;
    report.microbatches = static_cast<std::int64_t>(batch.microbatches.size());
    report.heaviest = heaviest_rows(batch, config_, prompt_);
    phase_.loader->reuse(std::move(batch));
    const double hop = config_.features.hop_seconds;
    report.audio_seconds = static_cast<double>(report.frames) * hop;
    report.rows = report.frames / config_.model.encoder.subsampling_factor + (phase.llm_weight > 0 ? counts.labels : 0);
    whole.reset();
    report.ops = added_since(ops_before, context_.trace.totals());
    for (const auto& [name, total] : report.ops) report.flops += total.flops;
    report_over_ranks(report, context_.memory.stats(), most_memory_, world_);
    report.drops = progress_.drops;
    report.data_wait = phase_.loader->waited() - waited;
    report.seconds = seconds_since(begin);
    progress_.train_seconds += report.seconds;
    return report;
  }

  /// Of all data-parallel ranks, which call it together.
  std::string samples_of(const LoadedBatch& batch) const {
    std::vector<std::int64_t> own;
    for (const auto& micro : batch.microbatches) own.insert(own.end(), micro.ids.begin(), micro.ids.end());
    std::string ids;
    for (const auto id : gathered(data_ranks(), own)) ids += ' ' + std::to_string(id);
    return ids;
  }

  /// "the gradient norm of step 7 is nan, its loss inf; nothing was updated". The sign of what is no number says nothing.
  std::string what_happened(double norm, double loss) const {
    std::ostringstream text;
    text << "the gradient norm of step " << progress_.step + 1 << " is " << std::abs(norm) << ", its loss "
         << (std::isnan(loss) ? std::abs(loss) : loss) << "; nothing was updated";
    return text.str();
  }

  [[noreturn]] void refuse_update(double norm, double loss, const LoadedBatch& batch) const {
    const std::string before = progress_.skipped_steps > 0
                                   ? "; " + std::to_string(progress_.skipped_steps) +
                                         " such batches were skipped before, trainer.skip_nonfinite_steps is " +
                                         std::to_string(config_.trainer.skip_nonfinite_steps)
                                   : "";
    fail("train", what_happened(norm, loss), before, ". Samples of the step:", samples_of(batch),
         ". The newest checkpoint is in ", checkpoints().string());
  }

  /// Only the place in the data goes on: the same step is tried with the next batch.
  void skip(double norm, double loss, LoadedBatch batch) {
    ++progress_.skipped_steps;
    say("skipped a batch: " + what_happened(norm, loss) + " (" + std::to_string(progress_.skipped_steps) + " of at most " +
        std::to_string(config_.trainer.skip_nonfinite_steps) + "). Its samples:" + samples_of(batch));
    phase_.data_parallel->free_gradients();
    discard_statistics(phase_.built->model);
    phase_.loader->reuse(std::move(batch));
  }

  void evaluate() {
    if (validation_.empty() || !evaluates_) return;
    phase_.data_parallel->free_gradients();
    const HeldValues held(*phase_.data_parallel);
    const auto begin = Clock::now();
    const Transcriber transcriber(context_, phase_.built->model, config_, inputs_);
    const Evaluation evaluation = chorus::evaluate(
        transcriber, validation_, evaluated_,
        [&](std::size_t i, const EvaluatedEntry& entry) {
          if (!entry.problem.empty()) say_own("not evaluated: " + validation_[i].name() + ": " + entry.problem);
        },
        &data_ranks(), mesh_.axis("tp_cp").group);
    if (evaluation.without_reference > 0)
      say_once("not evaluated: " + std::to_string(evaluation.without_reference) + " entries without reference");
    if (hooks_.evaluation)
      hooks_.evaluation({phase_.config->name, progress_.step, seconds_since(begin), evaluation, validation_});
  }

  void save() {
    if (saved_step_ == progress_.step) return;
    const std::vector<NamedPart> parts = named_tensors(*phase_.built, phase_.optimizer);
    WholeTensors wholes(world_, parts, phase_.built->store, mesh_);
    std::vector<CheckpointEntry> entries;
    for (std::size_t i = 0; i < parts.size(); ++i)
      entries.push_back(
          {.path = parts[i].name,
           .tensor = {},
           .later = CheckpointEntry::Later{parts[i].shape(), parts[i].tensor.dtype(), [&wholes, i] { return wholes.get(i); }}});
    from_leader(
        "no checkpoint of step " + std::to_string(progress_.step),
        [&] {
          const auto saved =
              save_checkpoint(checkpoints(), static_cast<std::uint64_t>(progress_.step), entries, to_json(progress_),
                              canonical_toml(config_), {.keep = config_.trainer.keep_checkpoints});
          for (const auto& warning : saved.warnings) say(warning);
        },
        [&] { leads() ? wholes.end() : wholes.serve(); });
    saved_step_ = progress_.step;
  }

  /// The first rank does it; where it fails, the others throw too. `together`: what all ranks do before they hear of that.
  void from_leader(const std::string& otherwise, const std::function<void()>& what, const std::function<void()>& together) {
    std::exception_ptr problem;
    if (leads()) {
      try {
        what();
      } catch (const GroupEnded&) {
        throw;
      } catch (...) {
        problem = std::current_exception();
      }
    }
    together();
    std::int64_t failed = problem != nullptr;
    world_.broadcast(std::span<std::int64_t>(&failed, 1), 0);
    if (problem) std::rethrow_exception(problem);
    require(!failed, "rank 0", otherwise);
  }

  /// In the middle of a run a full disk costs a checkpoint, not the steps since the one before.
  void try_to_save() {
    retry_at_ = -1;
    try {
      save();
    } catch (const GroupEnded&) {
      throw;
    } catch (const std::exception& error) {
      ++failed_saves_;
      retry_at_ = progress_.step + std::max<std::int64_t>(1, config_.trainer.checkpoint_every_n_steps / 10);
      say("no checkpoint of step " + std::to_string(progress_.step) + " (" + std::to_string(failed_saves_) +
          " could not be written so far), training goes on and tries again after step " + std::to_string(retry_at_) + ": " +
          error.what());
    }
  }

  void save_last() {
    try {
      save();
    } catch (const GroupEnded&) {
      throw;
    } catch (const std::exception& error) {
      const auto kept = step_folders(checkpoints());
      fail("train", "the last checkpoint, of step ", progress_.step, ", can't be written: ", error.what(), "; ",
           kept.empty() ? "there is none before it" : "the newest one is " + kept.front().path.string(),
           ". The same command goes on from there once it can write");
    }
  }

  /// The run is saved; a trace that can't be written is no reason to call it failed.
  void write_trace() const {
    try {
      context_.trace.write(config_.trainer.output_dir / "trace.json");
    } catch (const Error& error) {
      say(std::string("no trace of this run: ") + error.what());
    }
  }

  TrainingResult finish(Outcome outcome) {
    phase_.loader.reset();
    save_last();
    if (outcome == Outcome::finished && progress_.step > first_step_) evaluate();
    if (config_.trainer.trace && leads()) write_trace();
    return {.outcome = outcome,
            .step = progress_.step,
            .train_seconds = progress_.train_seconds,
            .weight_hash = weight_hash(*phase_.built, world_, mesh_),
            .skipped_steps = progress_.skipped_steps,
            .failed_saves = failed_saves_,
            .drops = progress_.drops};
  }

  const RunConfig& config_;
  const TrainerHooks& hooks_;
  Group& world_;
  Mesh mesh_;
  std::unique_ptr<RunLock> lock_;  ///< the first rank's
  Threads threads_;
  Context context_;
  std::string train_digest_;
  UsableEntries usable_;  ///< its entries are moved to the next
  std::vector<ManifestEntry> entries_;
  std::vector<TranscriptSource> validation_;
  TranscriptionOptions evaluated_;
  RunInputs inputs_;
  Frontend frontend_;
  Prompt prompt_;
  Progress progress_;
  Phase phase_;
  bool evaluates_ = false;  ///< whether the first rank reports evaluations, which all take part in
  std::int64_t first_step_ = 0, saved_step_ = -1;
  std::size_t most_memory_ = 0;  ///< bytes, before the running step
  FirstSteps first_steps_;
  std::set<std::string> said_;
  std::set<std::int64_t> without_ctc_, idle_said_;  ///< entries; phases
  std::int64_t failed_saves_ = 0, retry_at_ = -1;   ///< retry_at_: step after which to try a failed save again
};

}  // namespace

TrainingResult train(const RunConfig& config, const TrainerHooks& hooks) {
  SoloGroup alone;
  return train(config, hooks, alone);
}

TrainingResult train(const RunConfig& config, const TrainerHooks& hooks, Group& world) {
  return Trainer(config, hooks, world).run();
}

}  // namespace chorus
