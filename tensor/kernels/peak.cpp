#include <chorus/tensor/kernels/onednn.h>
#include <chorus/tensor/kernels/peak.h>

#include <chrono>
#include <limits>

namespace chorus::kernel {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Shortest run within `budget` seconds, the first one (cold memory, new primitive) left out.
double best_seconds(Context& context, const onednn::Product& p, double budget) {
  const auto operand = [&](const Shape& shape, DType dtype) {
    return Tensor::full(context, shape, dtype, 0.5, Category::workspace);
  };
  const Tensor a = operand({p.m, p.k}, p.in), b = operand({p.k, p.n}, p.in), y = operand({p.m, p.n}, p.out);
  const auto run = [&] { onednn::product(context, p, a.data(), b.data(), nullptr, y.data()); };
  run();
  double best = std::numeric_limits<double>::infinity();
  for (const auto begin = Clock::now(); since(begin) < budget;) {
    const auto start = Clock::now();
    run();
    best = std::min(best, since(start));
  }
  return best;
}

}  // namespace

double measure_matrix_peak(Context& context, DType dtype) {
  require(dtype == DType::f32 || dtype == DType::bf16, "measure_matrix_peak", "of ", dtype, "; f32 and bf16 have one");
  std::vector<DType> arithmetic{DType::f32};
  if (dtype == DType::bf16 && onednn::has_bf16()) arithmetic.push_back(DType::bf16);
  double peak = 0;
  for (const DType in : arithmetic)
    for (const Form form : {Form::nt, Form::nn})
      for (const auto& [m, n, k] : {std::array{1024, 1024, 1024}, {2048, 1536, 576}, {2048, 576, 1536}}) {
        const double seconds = best_seconds(context, {form, m, n, k, in, DType::f32, false, {}}, 0.05);
        peak = std::max(peak, 2.0 * m * n * k / seconds);
      }
  return peak;
}

}  // namespace chorus::kernel
