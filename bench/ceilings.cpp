// What this machine can do at best, measured now: matrix products and memory. Prints `figure NAME VALUE UNIT` lines.
#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/kernels/peak.h>
#include <chorus/tensor/kernels/vec.h>
#include <omp.h>

#include <chrono>
#include <cstdio>
#include <cstring>

namespace chorus {
namespace {

constexpr std::int64_t buffer_bytes = std::int64_t{512} << 20;  // beyond every cache
constexpr std::int64_t piece = std::int64_t{1} << 20;

template <class F>
double best_seconds(int repetitions, const F& run) {
  double best = 1e300;
  for (int i = 0; i < repetitions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

void figure(const std::string& name, double value, const char* unit) {
  std::printf("figure ceilings.%s %.1f %s\n", name.c_str(), value, unit);
  std::fflush(stdout);
}

/// Bytes read plus bytes written, per second.
void measure_memory(Context& context, const std::string& suffix) {
  const Tensor from = Tensor::empty(context, {buffer_bytes}, DType::u8), to = Tensor::empty(context, {buffer_bytes}, DType::u8);
  char *source = static_cast<char*>(from.data()), *target = static_cast<char*>(to.data());
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < buffer_bytes; i += piece) {
    std::memset(source + i, 1, piece);
    std::memset(target + i, 1, piece);
  }
  const double copy = best_seconds(4, [&] {
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < buffer_bytes; i += piece) std::memcpy(target + i, source + i, piece);
  });
  figure("memory.copy" + suffix, 2.0 * buffer_bytes / copy / 1e9, "GB/s");

  using Vector = kernel::Vec<float>;
  constexpr std::int64_t width = sizeof(Vector);
  double seen = 0;
  const double read = best_seconds(4, [&] {
    double total = 0;
#pragma omp parallel for schedule(static) reduction(+ : total)
    for (std::int64_t i = 0; i < buffer_bytes; i += piece) {
      Vector sums[4] = {};
      for (std::int64_t j = i; j < i + piece; j += 4 * width)
        for (int k = 0; k < 4; ++k) sums[k] += kernel::load<float>(reinterpret_cast<const float*>(source + j + k * width));
      total += static_cast<double>(kernel::sum<float>(sums[0] + sums[1] + sums[2] + sums[3]));
    }
    seen += total;
  });
  figure("memory.read" + suffix, static_cast<double>(buffer_bytes) / read / 1e9, "GB/s");
  if (seen < 0) std::puts("");  // the sums must be computed
}

void measure(Context& context, const std::string& suffix) {
  for (const DType dtype : {DType::f32, DType::bf16})
    figure(std::string(name(dtype)) + ".peak" + suffix, kernel::measure_matrix_peak(context, dtype) / 1e9, "GFLOP/s");
  measure_memory(context, suffix);
}

}  // namespace
}  // namespace chorus

int main() {
  chorus::Context context;
  std::printf("# %s\n", chorus::kernel::matmul_description().c_str());
  chorus::measure(context, "");
  omp_set_num_threads(1);
  chorus::measure(context, ".one_thread");
}
