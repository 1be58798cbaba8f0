#include <chorus/apps/commands.h>
#include <chorus/apps/console.h>
#include <chorus/apps/dry_run.h>
#include <chorus/apps/layout_check.h>
#include <chorus/apps/run_record.h>
#include <chorus/core/cpu.h>
#include <chorus/parallel/group/mpi.h>

#include <algorithm>
#include <atomic>
#include <csignal>

namespace chorus {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);

/// The first signal asks the trainer to save and return; a second one ends the process at once.
void request_stop(int signal) {
  if (stop_requested.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

/// A rank that others lead: it says only what it alone has met.
int follow(const RunConfig& config, Group& world) {
  Console console;
  TrainerHooks hooks;
  hooks.stop = &stop_requested;
  hooks.message = [&](const std::string& text) { console.message(text); };
  return train(config, hooks, world).outcome == Outcome::stopped ? exit_stopped : 0;
}

/// Trains by `run` and keeps the record of the run.
int lead(const Loaded<RunConfig>& loaded, const TrainOptions& options,
         const std::function<TrainingResult(const TrainerHooks&)>& run) {
  const RunConfig& config = loaded.value;
  Console console;
  console.banner(config, options.file.string());
  const auto say = [&](const std::string& text) { console.message(text); };
  RunRecord record(config.trainer.output_dir,
                   {.matrix_peak = console.matrix_peak(),
                    .interval = config.trainer.log_every_n_steps,
                    .transcripts = 50,
                    .config = resolved_toml(loaded)},
                   say);
  TrainerHooks hooks;
  hooks.stop = &stop_requested;
  hooks.message = say;
  hooks.start = [&](const StartReport& report) { record.start(report); };
  hooks.step = [&](const StepReport& report) {
    console.step(report, config.trainer.log_every_n_steps);
    record.step(report);
  };
  hooks.evaluation = [&](const EvaluationReport& report) {
    console.evaluation(report);
    record.evaluation(report);
  };
  hooks.memory = [&](const MemoryReport& report) {
    console.message(memory_report_text(report));
    record.memory(report);
  };
  const TrainingResult result = run(hooks);
  record.end(result);
  const char* how = result.outcome == Outcome::finished  ? "finished"
                    : result.outcome == Outcome::stopped ? "stopped by a signal"
                                                         : "paused";
  console.message(std::string(how) + " after step " + std::to_string(result.step) +
                  "; dropped samples: " + result.drops.report());
  std::printf("figure train.seconds %.1f s\nweights %s\n", result.train_seconds, result.weight_hash.c_str());
  if (result.failed_saves > 0)
    say(std::to_string(result.failed_saves) + " times a periodic checkpoint could not be written; the last one was");
  record.finish();
  return result.outcome == Outcome::stopped ? exit_stopped : 0;
}

}  // namespace

int run_train(const TrainOptions& options) {
  if (options.reference) {
    std::printf("%s", config_reference<RunConfig>().c_str());
    return 0;
  }
  if (options.file.string().find('=') != std::string::npos && !std::filesystem::exists(options.file))
    throw ConfigError("configuration: there is no file '" + options.file.string() +
                      "'; the configuration's file comes first, key=value after it");
  const auto loaded = load_config<RunConfig>(options.file, options.overrides);
  if (options.print_config) {
    std::printf("%s", resolved_toml(loaded).c_str());
    return 0;
  }
  check_paths(loaded);
  const RunConfig& config = loaded.value;
  const int processes = launched_processes().value_or(1), cores = compute_threads();
  const MeshSizes sizes = config.parallel.sizes();
  const std::int64_t asked_for = std::max<std::int64_t>(1, sizes.dp) * sizes.tp;
  const int ranks = processes > 1       ? processes
                    : options.ranks > 0 ? options.ranks
                    : options.dry_run   ? static_cast<int>(std::min<std::int64_t>(asked_for, 1 << 20))
                                        : 1;
  check_layout(loaded, ranks);
  const std::string too_many = processes > 1 || (options.dry_run && options.measure == 0) ? "" : too_many_ranks(ranks, cores);
  if (!too_many.empty()) throw ConfigError(too_many);
  if (options.dry_run) return run_dry_run(loaded, options.measure, ranks);
  std::signal(SIGPIPE, SIG_IGN);  // whoever reads along may go; the steps go on
  std::signal(SIGTERM, request_stop);
  std::signal(SIGINT, request_stop);
  if (processes == 1)
    return lead(loaded, options, [&](const TrainerHooks& hooks) {
      if (ranks > cores)
        hooks.message(std::to_string(ranks) + " ranks on " + std::to_string(cores) + (cores == 1 ? " core" : " cores") +
                      ": a way to try a layout, not to train faster");
      return train_on_threads(config, hooks, ranks);
    });
  require(options.ranks == 0, "train", "--ranks ", options.ranks, " in each of ", processes, " processes: ranks are either");
  int status = 0;
  MpiOptions mpi;
  mpi.time_limit = config.parallel.time_limit_seconds;
  mpi.record_folder = config.trainer.output_dir / "ranks";
  run_mpi(mpi, [&](Group& world) {
    require(world.size() == processes, "train", processes, " processes were started, but MPI (", mpi_library(), ") knows of ",
            world.size(), ": they were started by another MPI's launcher");
    status = world.rank() > 0 ? follow(config, world)
                              : lead(loaded, options, [&](const TrainerHooks& hooks) { return train(config, hooks, world); });
  });
  return status;
}

}  // namespace chorus
