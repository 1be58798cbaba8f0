// Times whole training steps (forward, backward, norm, clipping, optimizer) on made-up input and prints where the time goes.
//   bench_step salm-small|salm-110m|decoder [--dtype f32|bf16] [--steps N] [--warm N] [--tokens N] [--export FILE.h5]
//              [--recompute none|selective|full]
// --export: writes one step's loss and gradients without dropout first (see workloads.h).
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/kernels/peak.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <numeric>

#include "process.h"
#include "workloads.h"

namespace chorus::bench {
namespace {

struct Options {
  std::string model = "salm-small", export_file;
  DType dtype = DType::f32;
  int steps = 10, warm = 2;
  std::int64_t tokens = 2048;
  Recompute recompute = Recompute::none;
};

/// So small that every step is like the one before it: the compressor of salm-small goes on to see the same frames.
constexpr double learning_rate = 1e-6;

void print_ops(const std::map<std::string, Trace::Total>& totals, int steps, double step_seconds) {
  std::vector<std::pair<double, std::string>> rows;
  double spans = 0;
  for (const auto& [name, total] : totals) rows.push_back({total.seconds / steps, name}), spans += total.seconds / steps;
  std::sort(rows.rbegin(), rows.rend());
  std::printf("%-34s %9s %7s %9s %9s\n", "op", "ms/step", "%", "calls", "GFLOP/s");
  for (const auto& [seconds, name] : rows) {
    const auto& total = totals.at(name);
    std::printf("%-34s %9.3f %7.1f %9.1f %9.1f\n", name.c_str(), seconds * 1e3, 100 * seconds / step_seconds,
                static_cast<double>(total.count) / steps, total.flops / std::max(total.seconds, 1e-12) / 1e9);
  }
  std::printf("%-34s %9.3f %7.1f\n", "outside spans", (step_seconds - spans) * 1e3,
              100 * (step_seconds - spans) / step_seconds);
}

void measure(Context& context, Workload& work, const Options& options, double resident_at_start) {
  using Clock = std::chrono::steady_clock;
  SoloGroup group;
  Optimizer optimizer({}, work.store);
  const auto step = [&](std::uint64_t number) {
    work.store.start_step();
    const Tensor loss = work.loss({.training = true, .seed = 1, .step = number});
    backward(loss);
    work.store.finish_step();
    const double norm = grad_norm(work.store, group);
    const Span span(context.trace, "optimizer");
    optimizer.step(work.store, learning_rate, clip_factor(norm, 1.0));
    return loss.item();
  };
  std::uint64_t number = 0;
  for (int i = 0; i < options.warm; ++i) step(number++);
  const auto primitives = kernel::matmul_primitives_created(context);
  const auto allocations = context.memory.stats().system_allocations;
  const long faults = minor_faults();
  context.trace.sum(true);
  context.trace.reset();
  std::vector<double> times;
  double loss = 0;
  for (int i = 0; i < options.steps; ++i) {
    const auto begin = Clock::now();
    loss = step(number++);
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  const double steps = options.steps, new_faults = static_cast<double>(minor_faults() - faults) / steps;
  const double memory = resident_bytes("VmHWM") - resident_at_start;  // before the peak takes its own
  std::printf("step_seconds");
  for (const double t : times) std::printf(" %.4f", t);
  std::printf("\n");
  // The spans' times are means, so they are shares of the mean step.
  print_ops(context.trace.totals(), options.steps, std::accumulate(times.begin(), times.end(), 0.0) / steps);
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  double computed = 0;
  for (const auto& [name, total] : context.trace.totals()) computed += total.flops / steps;
  const auto stats = context.memory.stats();
  const auto created = kernel::matmul_primitives_created(context) - primitives;  // before the peak makes its own

  const std::string prefix = "step." + work.letter + '.' + std::string(name(options.dtype)) +
                             (options.recompute == Recompute::none ? "" : '.' + std::string(name(options.recompute)));
  const auto figure = [&](const char* what, double value, const char* unit) {
    std::printf("figure %s.%s %.5g %s\n", prefix.c_str(), what, value, unit);
  };
  figure("seconds", median, "s");
  figure("tokens_per_s", work.tokens / median, "tokens/s");
  figure("flops", work.flops / 1e9, "GFLOP");
  figure("flops_traced", computed / 1e9, "GFLOP");
  figure("rate", work.flops / median / 1e9, "GFLOP/s");
  figure("peak_percent", 100 * work.flops / median / kernel::measure_matrix_peak(context, options.dtype), "%");
  figure("memory", memory / 1048576.0, "MiB");
  figure("memory_tensors", static_cast<double>(stats.peak_total) / 1048576.0, "MiB");
  figure("memory_activations", static_cast<double>(stats.peak[static_cast<std::size_t>(Category::activations)]) / 1048576.0,
         "MiB");
  figure("memory_touched", static_cast<double>(stats.touched) / 1048576.0, "MiB");
  figure("memory_reserved", static_cast<double>(stats.reserved) / 1048576.0, "MiB");
  figure("page_faults", new_faults, "faults/step");
  figure("system_allocations", static_cast<double>(stats.system_allocations - allocations), "allocations");
  figure("primitives_created", static_cast<double>(created), "primitives");
  figure("loss", loss, "nats");
}

constexpr const char* usage =
    "bench_step salm-small|salm-110m|decoder [--dtype f32|bf16] [--steps N] [--warm N] [--tokens N] [--export FILE.h5]"
    " [--recompute none|selective|full]";

Options parse(int argc, char** argv) {
  Options options;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!word.starts_with("--")) {
      options.model = word;
      continue;
    }
    require(i + 1 < words.size(), "bench_step", word, " without its value; ", usage);
    const std::string& value = words[++i];
    const auto count = [&](int least) {
      int n = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
      require(error == std::errc{} && end == value.data() + value.size() && n >= least, "bench_step", word, ' ', value,
              "; expected a number of at least ", least);
      return n;
    };
    if (word == "--dtype") {
      require(value == "f32" || value == "bf16", "bench_step", "--dtype ", value, "; expected f32 or bf16");
      options.dtype = value == "bf16" ? DType::bf16 : DType::f32;
    } else if (word == "--steps") {
      options.steps = count(0);
    } else if (word == "--warm") {
      options.warm = count(0);
    } else if (word == "--tokens") {
      options.tokens = count(1);
    } else if (word == "--export") {
      options.export_file = value;
    } else if (word == "--recompute") {
      options.recompute = recompute_mode(value);
    } else {
      fail("bench_step", "no option ", word, "; ", usage);
    }
  }
  return options;
}

void run(const Options& options) {
  Context context;
  std::printf("%s, %s on %s\n", options.model.c_str(), std::string(name(options.dtype)).c_str(),
              kernel::matmul_description().c_str());
  const double resident = resident_bytes("VmRSS");  // after start-up, before there is a model
  const auto work = make_workload(context, options.model, options.dtype, options.tokens);
  work->checkpoint(options.recompute);
  if (!options.export_file.empty()) {
    work->store.start_step();
    const Tensor loss = work->loss(Pass{});
    backward(loss);
    work->store.finish_step();
    write_export(*work, loss, options.export_file);
  }
  if (options.steps > 0) measure(context, *work, options, resident);
}

}  // namespace
}  // namespace chorus::bench

int main(int argc, char** argv) {
  try {
    chorus::bench::run(chorus::bench::parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
