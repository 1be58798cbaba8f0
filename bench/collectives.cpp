// Collectives of ranks on one machine. Alone it measures ranks that are threads against memory: a reduction of 256 MiB by two
// ranks reads and writes each buffer once, so what it touches per second is compared with what a copy reads and writes in the
// same run. Started by a launcher (mpirun -n 2) it measures ranks that are processes against MPI_Allreduce itself, by turns.
// Prints `figure NAME VALUE UNIT` lines.
#include <chorus/parallel/group/mpi.h>
#include <chorus/parallel/group/threads.h>
#include <chorus/tensor/tensor.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "mpi_peer.h"

namespace chorus::bench {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }
double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}
void figure(const char* name, double value, const char* unit) {
  std::printf("figure parallel.%s %.4g %s\n", name, value, unit);
  std::fflush(stdout);
}

/// Seconds of `run` on all ranks together: from the first that begins to the last that ends.
template <class F>
double timed(Group& group, const F& run) {
  group.barrier();
  const auto begin = Clock::now();
  run();
  group.barrier();
  return seconds_since(begin);
}

void threads(int ranks) {
  constexpr std::int64_t bytes = std::int64_t{256} << 20, count = bytes / 4;
  constexpr int turns = 9;
  ThreadOptions options;
  run_ranks(ranks, options, [&](Group& world) {
    Context context;
    const Tensor x = Tensor::zeros(context, {count}, DType::f32), y = Tensor::zeros(context, {count}, DType::f32);
    std::vector<double> reductions, copies, gathers;
    for (int turn = 0; turn <= turns; ++turn) {
      const double copy = timed(world, [&] { std::memcpy(y.data(), x.data(), bytes); });
      const double reduction = timed(world, [&] { world.all_reduce(x); });
      if (turn == 0) continue;  // pages and caches
      copies.push_back(copy);
      reductions.push_back(reduction);
    }
    if (world.rank() > 0) return;
    // Every rank's buffer is read and written once; a copy reads one and writes another.
    const double touched = 2.0 * bytes * ranks;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < copies.size(); ++i) ratios.push_back(copies[i] / reductions[i]);
    figure("all_reduce.threads.memory_copy", touched / median(copies) / 1e9, "GB/s");
    figure("all_reduce.threads.touched", touched / median(reductions) / 1e9, "GB/s");
    figure("all_reduce.threads", 100 * median(ratios), "%");
  });
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{4096}, std::int64_t{65536}})
    run_ranks(ranks, options, [&](Group& world) {
      std::vector<float> x(static_cast<std::size_t>(size), 1e-30f);
      std::vector<double> times;
      for (int turn = 0; turn < 200; ++turn)
        times.push_back(timed(world,
                              [&] {
                                for (int i = 0; i < 20; ++i) world.all_reduce(std::span<float>(x));
                              }) /
                        20);
      if (world.rank() == 0) figure(("all_reduce.threads.of_" + std::to_string(4 * size)).c_str(), 1e6 * median(times), "us");
    });
}

void processes(const MpiOptions& options, std::int64_t most) {
  run_mpi(options, [&](Group& world) {
    if (world.rank() == 0) std::printf("# %s, %d ranks\n", mpi_library().c_str(), world.size());
    double worst = 0;
    for (std::int64_t bytes = 4; bytes <= most; bytes *= bytes < 1024 ? 16 : 4) {
      const std::int64_t count = bytes / 4;
      std::vector<float> x(static_cast<std::size_t>(count), 1e-30f);
      const int repeat = static_cast<int>(std::clamp<std::int64_t>((std::int64_t{4} << 20) / bytes, 1, 200));
      const int turns = bytes > 4 << 20 ? 15 : 61;  // short ones: another process that runs for a while spoils few
      std::vector<double> ratios, ours, theirs;
      for (int turn = 0; turn <= turns; ++turn) {
        const double own = timed(world, [&] {
          for (int i = 0; i < repeat; ++i) world.all_reduce(std::span<float>(x));
        });
        const double plain = timed(world, [&] {
          for (int i = 0; i < repeat; ++i) mpi_all_reduce(x.data(), count);
        });
        if (turn == 0) continue;
        ratios.push_back(own / plain), ours.push_back(own / repeat), theirs.push_back(plain / repeat);
      }
      if (world.rank() > 0) continue;
      const double best[] = {*std::ranges::min_element(ours), *std::ranges::min_element(theirs)};
      std::printf("# %9lld bytes: ours %.1f us, MPI_Allreduce %.1f us, ratio %.3f; the best turns %.1f and %.1f, ratio %.3f\n",
                  static_cast<long long>(bytes), 1e6 * median(ours), 1e6 * median(theirs), median(ratios), 1e6 * best[0],
                  1e6 * best[1], best[0] / best[1]);
      figure(("mpi.ratio.of_" + std::to_string(bytes)).c_str(), median(ratios), "");
      if (bytes >= 64 << 10) worst = std::max(worst, median(ratios));
    }
    if (world.rank() == 0) figure("mpi.ratio", worst, "(ours over MPI_Allreduce, the worst size from 64 KiB on)");
  });
}

}  // namespace
}  // namespace chorus::bench

int main(int argc, char** argv) {
  using namespace chorus;
  try {
    if (!launched_processes()) {
      bench::threads(argc > 1 ? std::atoi(argv[1]) : 2);
      return 0;
    }
    MpiOptions options;
    if (argc > 1) options.chunk_bytes = std::atoll(argv[1]);
    if (argc > 2) options.small_bytes = std::atoll(argv[2]);
    bench::processes(options, std::int64_t{64} << 20);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_collectives: %s\n", e.what());
    return 1;
  }
}
