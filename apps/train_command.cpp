#include <chorus/apps/commands.h>
#include <chorus/apps/console.h>
#include <chorus/io/metrics.h>

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

std::string hexfloat(double x) {
  char text[64];
  std::snprintf(text, sizeof text, "%a", x);
  return text;
}

void write_step(MetricsWriter& metrics, const StepReport& r, double matrix_peak) {
  metrics.write({{"event", std::string("step")},
                 {"phase", r.phase},
                 {"step", r.step},
                 {"epoch", r.epoch},
                 {"loss", r.loss},
                 {"loss_hex", hexfloat(r.loss)},
                 {"llm_loss", r.llm_loss},
                 {"ctc_loss", r.ctc_loss},
                 {"grad_norm", r.grad_norm},
                 {"lr", r.lr},
                 {"samples", r.samples},
                 {"frames", r.frames},
                 {"labels", r.labels},
                 {"microbatches", r.microbatches},
                 {"tokens_per_s", static_cast<double>(r.rows) / r.seconds},
                 {"audio_seconds_per_s", r.audio_seconds / r.seconds},
                 {"gflops", r.flops / r.seconds / 1e9},
                 {"peak_percent", 100 * r.flops / r.seconds / matrix_peak},
                 {"seconds", r.seconds},
                 {"data_wait", r.data_wait},
                 {"memory_bytes", static_cast<std::int64_t>(r.memory)},
                 {"memory_peak_bytes", static_cast<std::int64_t>(r.memory_peak)}});
}

}  // namespace

int run_train(const TrainOptions& options) {
  if (options.reference) {
    std::printf("%s", config_reference<RunConfig>().c_str());
    return 0;
  }
  const auto loaded = load_config<RunConfig>(options.file, options.overrides);
  if (options.print_config) {
    std::printf("%s", resolved_toml(loaded).c_str());
    return 0;
  }
  const RunConfig& config = loaded.value;
  Console console;
  console.banner(config, options.file.string());
  std::filesystem::create_directories(config.trainer.output_dir);
  MetricsWriter metrics(config.trainer.output_dir / "metrics.jsonl");
  std::signal(SIGTERM, request_stop);
  std::signal(SIGINT, request_stop);
  TrainerHooks hooks;
  hooks.stop = &stop_requested;
  hooks.message = [&](const std::string& text) { console.message(text); };
  hooks.step = [&](const StepReport& report) {
    console.step(report, config.trainer.log_every_n_steps);
    write_step(metrics, report, console.matrix_peak());
  };
  hooks.evaluation = [&](const std::string& phase, std::int64_t step, const Evaluation& e) {
    console.evaluation(phase, step, e);
    metrics.write({{"event", std::string("evaluation")},
                   {"phase", phase},
                   {"step", step},
                   {"llm_loss", e.llm_loss},
                   {"ctc_loss", e.ctc_loss},
                   {"llm_cer", e.llm.characters.value()},
                   {"llm_wer", e.llm.words.value()},
                   {"ctc_cer", e.ctc.characters.value()},
                   {"ctc_wer", e.ctc.words.value()}});
  };
  const TrainingResult result = train(config, hooks);
  metrics.write({{"event", std::string("end")},
                 {"step", result.step},
                 {"train_seconds", result.train_seconds},
                 {"weight_hash", result.weight_hash},
                 {"dropped", result.drops.total()}});
  const char* how = result.outcome == Outcome::finished  ? "finished"
                    : result.outcome == Outcome::stopped ? "stopped by a signal"
                                                         : "paused";
  console.message(std::string(how) + " after step " + std::to_string(result.step) +
                  "; dropped samples: " + result.drops.report());
  std::printf("figure train.seconds %.1f s\nweights %s\n", result.train_seconds, result.weight_hash.c_str());
  return result.outcome == Outcome::stopped ? exit_stopped : 0;
}

}  // namespace chorus
