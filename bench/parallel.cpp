// Times data-parallel training steps of the decoder workload with ranks as threads of this process.
//   bench_parallel [--ranks N] [--threads N] [--dtype f32|bf16] [--tokens N] [--steps N] [--warm N] [--export FILE.h5]
//                  [--sharding none|optimizer|gradients|full] [--reshard auto|always|never]
// --tokens: of all ranks together. --threads: of each rank. --export: writes one step's loss and summed gradients first.
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/threads.h>
#include <chorus/parallel/make_data_parallel.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "process.h"
#include "workloads.h"

namespace chorus::bench {
namespace {

struct Options {
  int ranks = 2, threads = 1, steps = 3, warm = 1;
  std::int64_t tokens = 2048;
  DType dtype = DType::f32;
  std::string export_file;
  Sharding sharding = Sharding::none;
  ShardingOptions shards;
};

constexpr const char* usage =
    "bench_parallel [--ranks N] [--threads N] [--dtype f32|bf16] [--tokens N] [--steps N] [--warm N] [--export FILE.h5] "
    "[--sharding none|optimizer|gradients|full] [--reshard auto|always|never]";

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
    } else if (word == "--sharding") {
      options.sharding = sharding_of(value);
    } else if (word == "--reshard") {
      require(value == "auto" || value == "always" || value == "never", "bench_parallel", "--reshard ", value,
              "; expected auto, always or never");
      options.shards.reshard_after_forward = value;
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

void run_rank(Group& world, const Options& options, double resident_at_start) {
  using Clock = std::chrono::steady_clock;
  Context context;
  const Mesh mesh(world, mesh_shape({}, world.size()));
  const auto work =
      make_decoder(context, options.dtype, options.tokens, {world.rank(), world.size(), store_shard(options.sharding, mesh)});
  const auto ranks =
      make_data_parallel(work->store, mesh, {.sharding = options.sharding, .shards = options.shards}, work->walk);
  if (!options.export_file.empty()) {
    ranks->start_step();
    const Tensor share = work->loss(Pass{});
    ranks->backward(share, true);
    ranks->finish_step();
    const double loss = whole_loss(world, share);
    write_export(*work, Tensor::full(context, {}, DType::f64, loss), options.export_file, mesh);
  }
  if (options.steps == 0) return;
  Optimizer optimizer({}, work->store);
  const auto step = [&](std::uint64_t number) {
    ranks->start_step();
    const Tensor share = work->loss({.training = true, .seed = 1, .step = number});
    ranks->backward(share, true);
    ranks->finish_step();
    optimizer.step(work->store, 1e-6, clip_factor(ranks->norm(), 1.0));
    ranks->values_changed();
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
  std::printf("\nseconds %.6g\ntokens %.6g\nloss %.6g\n", median, tokens, loss);
  std::printf("memory %.6g\n", (resident_bytes("VmHWM") - resident_at_start) / 1048576.0);
  const auto stats = context.memory.stats();
  for (std::size_t c = 0; c < category_count; ++c)
    std::printf("peak_%s %.6g\n", std::string(name(static_cast<Category>(c))).c_str(),
                static_cast<double>(stats.peak[c]) / 1048576.0);
  double exchanged = 0;
  for (const auto& [op, total] : context.trace.totals())
    if (op.ends_with(" gradients") || op.ends_with(" parameters")) exchanged += total.seconds / options.steps;
  std::printf("exchange_seconds %.6g\n", exchanged);
  std::printf("figure parallel.%s.%dx%d.%s.tokens_per_s %.5g tokens/s\n",
              options.sharding == Sharding::none ? "ddp" : std::string(name(options.sharding)).c_str(), options.ranks,
              options.threads, std::string(name(options.dtype)).c_str(), tokens / median);
}

}  // namespace
}  // namespace chorus::bench

int main(int argc, char** argv) {
  try {
    const auto options = chorus::bench::parse(argc, argv);
    const double at_start = chorus::bench::resident_bytes("VmRSS");
    chorus::ThreadOptions threads;
    threads.threads_per_rank = options.threads;
    chorus::run_ranks(options.ranks, threads, [&](chorus::Group& world) { chorus::bench::run_rank(world, options, at_start); });
    return 0;
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "%s\n", error.what()), 1;
  }
}
