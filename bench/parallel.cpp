// Times data-parallel training steps of the decoder workload with ranks as threads of this process.
//   bench_parallel [--ranks N] [--threads N] [--dtype f32|bf16] [--tokens N] [--steps N] [--warm N] [--export FILE.h5]
// --tokens: of all ranks together. --threads: of each rank. --export: writes one step's loss and summed gradients first.
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/ddp.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/parallel/group/threads.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "workloads.h"

namespace chorus::bench {
namespace {

struct Options {
  int ranks = 2, threads = 1, steps = 3, warm = 1;
  std::int64_t tokens = 2048;
  DType dtype = DType::f32;
  std::string export_file;
};

constexpr const char* usage =
    "bench_parallel [--ranks N] [--threads N] [--dtype f32|bf16] [--tokens N] [--steps N] [--warm N] [--export FILE.h5]";

Options parse(int argc, char** argv) {
  Options options;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const std::string& word = words[i];
    require(i + 1 < words.size(), "bench_parallel", word, " without its value; ", usage);
    const std::string& value = words[i + 1];
    const auto count = [&](int least) {
      int n = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
      require(error == std::errc{} && end == value.data() + value.size() && n >= least, "bench_parallel", word, ' ', value,
              "; expected a number of at least ", least);
      return n;
    };
    if (word == "--dtype") {
      require(value == "f32" || value == "bf16", "bench_parallel", "--dtype ", value, "; expected f32 or bf16");
      options.dtype = value == "bf16" ? DType::bf16 : DType::f32;
    } else if (word == "--ranks") {
      options.ranks = count(1);
    } else if (word == "--threads") {
      options.threads = count(1);
    } else if (word == "--steps") {
      options.steps = count(0);
    } else if (word == "--warm") {
      options.warm = count(0);
    } else if (word == "--tokens") {
      options.tokens = count(1);
    } else if (word == "--export") {
      options.export_file = value;
    } else {
      fail("bench_parallel", "no option ", word, "; ", usage);
    }
  }
  return options;
}

/// The sum of the ranks' shares.
double whole_loss(Group& world, const Tensor& share) {
  double loss = share.item();
  world.all_reduce(std::span(&loss, 1));
  return loss;
}

void run_rank(Group& world, const Options& options) {
  using Clock = std::chrono::steady_clock;
  Context context;
  const auto work = make_decoder(context, options.dtype, options.tokens, {world.rank(), world.size()});
  Ddp ddp(work->store, world);
  SoloGroup alone;
  if (!options.export_file.empty()) {
    ddp.start_step();
    const Tensor share = work->loss(Pass{});
    ddp.backward(share, true);
    ddp.finish_step();
    const double loss = whole_loss(world, share);
    if (world.rank() == 0) write_export(*work, Tensor::full(context, {}, DType::f64, loss), options.export_file);
  }
  if (options.steps == 0) return;
  Optimizer optimizer({}, work->store);
  const auto step = [&](std::uint64_t number) {
    ddp.start_step();
    const Tensor share = work->loss({.training = true, .seed = 1, .step = number});
    ddp.backward(share, true);
    ddp.finish_step();
    const double norm = grad_norm(work->store, alone);
    optimizer.step(work->store, 1e-6, clip_factor(norm, 1.0));
    return whole_loss(world, share);
  };
  std::uint64_t number = 0;
  for (int i = 0; i < options.warm; ++i) step(number++);
  context.trace.sum(true);
  std::vector<double> times;
  double loss = 0;
  for (int i = 0; i < options.steps; ++i) {
    world.barrier();
    const auto begin = Clock::now();
    loss = step(number++);
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  if (world.rank() > 0) return;
  std::printf("step_seconds");
  for (const double t : times) std::printf(" %.4f", t);
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const auto tokens = static_cast<double>(options.tokens);
  std::printf("\nseconds %.6g\ntokens %.6g\nbuckets %zu\nloss %.6g\n", median, tokens, ddp.buckets().size(), loss);
  const auto totals = context.trace.totals();
  if (const auto reduce = totals.find("all_reduce gradients"); reduce != totals.end())
    std::printf("all_reduce_seconds %.6g\n", reduce->second.seconds / options.steps);
  std::printf("figure parallel.%dx%d.%s.tokens_per_s %.5g tokens/s\n", options.ranks, options.threads,
              std::string(name(options.dtype)).c_str(), tokens / median);
}

}  // namespace
}  // namespace chorus::bench

int main(int argc, char** argv) {
  try {
    const auto options = chorus::bench::parse(argc, argv);
    chorus::ThreadOptions threads;
    threads.threads_per_rank = options.threads;
    chorus::run_ranks(options.ranks, threads, [&](chorus::Group& world) { chorus::bench::run_rank(world, options); });
    return 0;
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
