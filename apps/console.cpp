#include <chorus/apps/console.h>
#include <chorus/core/cpu.h>
#include <chorus/core/text.h>
#include <chorus/tensor/kernels/device_memory.h>
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/kernels/peak.h>
#include <omp.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace chorus {
namespace {

std::string formatted(const char* format, auto... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string time_left(double seconds) {
  const auto s = static_cast<long>(seconds);
  return s >= 3600 ? formatted("%ldh%02ldm", s / 3600, s / 60 % 60) : formatted("%ldm%02lds", s / 60, s % 60);
}

}  // namespace

Console::Console() {
  const char* term = std::getenv("TERM");
  terminal_ = isatty(STDERR_FILENO) != 0 && term && std::string(term) != "dumb" && !std::getenv("NO_COLOR");
}

Console::~Console() { clear_bar(); }

void Console::clear_bar() {
  if (bar_shown_) std::fputs("\r\033[K", stderr);
  bar_shown_ = false;
}

void Console::message(const std::string& text) {
  clear_bar();
  const bool written = std::printf("%s\n", text.c_str()) >= 0 && std::fflush(stdout) == 0;
  if (written || stdout_failed_) return;
  stdout_failed_ = true;  // once is enough; the program ends with an error
  std::fprintf(stderr, "chorus: standard output can't be written, which ends nothing before its time: %s\n",
               std::strerror(errno));
}

void Console::banner(const RunConfig& config, const std::string& file) {
  const int threads = config.trainer.threads > 0 ? config.trainer.threads : compute_threads();
  omp_set_num_threads(threads);
  Context context;
  const DType type = config.trainer.precision == "bf16-mixed" ? DType::bf16 : DType::f32;
  matrix_peak_ = kernel::measure_matrix_peak(context, type);
  const auto cuda = kernel::cuda_status();
  message("Chorus 0.1, configuration " + file + ", run folder " + config.trainer.output_dir.string());
  message("  CPU      " + describe(cpu_info(), threads));
  message("  products " + kernel::matmul_description() + ", matrix peak " + human_number(matrix_peak_) + "FLOP/s in " +
          std::string(name(type)));
  message("  CUDA     " + cuda.text);
  message("  training precision " + config.trainer.precision + ", seed " + std::to_string(config.trainer.seed) + ", " +
          std::to_string(config.phases.size()) + " phases, " + std::to_string(config.total_steps()) + " steps");
}

std::string step_line(const StepReport& r) {
  return formatted("step %6lld/%lld %-8s loss %8.4f  llm %7.4f  ctc %7.4f  grad_norm %8.3f  lr %.2e",
                   static_cast<long long>(r.step), static_cast<long long>(r.total_steps), r.phase.c_str(), r.loss, r.llm_loss,
                   r.ctc_loss, r.grad_norm, r.lr);
}

void Console::step(const StepReport& r, std::int64_t every) {
  ++steps_;
  seconds_ += r.seconds;
  wait_ += r.data_wait;
  flops_ += r.flops;
  audio_ += r.audio_seconds;
  rows_ += static_cast<double>(r.rows);
  const std::string left = time_left(static_cast<double>(r.total_steps - r.step) * seconds_ / static_cast<double>(steps_));
  if (r.step % every == 0 || r.step == r.total_steps) {
    const double rate = flops_ / seconds_;
    message(step_line(r) +
            formatted("  tokens/s %6.0f  audio %5.0fx  %sFLOP/s %4.1f%% of peak  memory %s  wait %4.1f%%  left %s",
                      rows_ / seconds_, audio_ / seconds_, human_number(rate).c_str(), 100 * rate / matrix_peak_,
                      human_bytes(static_cast<double>(r.memory_peak)).c_str(), 100 * wait_ / seconds_, left.c_str()));
    steps_ = 0;
    seconds_ = wait_ = flops_ = audio_ = rows_ = 0;
  } else if (terminal_) {
    constexpr int width = 30;
    const auto filled = static_cast<int>(width * r.step / r.total_steps);
    const std::string bar =
        std::string(static_cast<std::size_t>(filled), '#') + std::string(static_cast<std::size_t>(width - filled), '.');
    std::fprintf(stderr, "\r\033[K[%s] %lld/%lld loss %.4f left %s", bar.c_str(), static_cast<long long>(r.step),
                 static_cast<long long>(r.total_steps), r.loss, left.c_str());
    bar_shown_ = true;
  }
}

void Console::evaluation(const EvaluationReport& report) {
  const Evaluation& e = report.evaluation;
  const auto part = [](const char* label, double loss, const TextScore& score) {
    if (score.characters.reference == 0) return std::string();
    return formatted(", %s loss %.4f CER %.1f %% WER %.1f %%", label, loss, 100 * score.characters.value(),
                     100 * score.words.value());
  };
  const std::string text = !e.listens ? formatted(", llm loss %.4f perplexity %.2f, %.3f bits per byte", e.llm_loss,
                                                  e.perplexity(), e.bits_per_byte())
                                      : "";
  message("evaluation after step " + std::to_string(report.step) + " (" + report.phase + ')' + text +
          part("llm", e.llm_loss, e.llm) + part("ctc", e.ctc_loss, e.ctc));
}

}  // namespace chorus
