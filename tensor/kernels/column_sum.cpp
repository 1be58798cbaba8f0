#include <chorus/tensor/kernels/column_sum.h>

#include <algorithm>

namespace chorus::kernel {
namespace {
constexpr std::int64_t run = 64;    // rows
constexpr std::int64_t width = 64;  // columns of one thread's turn: 4 cache lines of f32, sums stay in registers
}  // namespace

void column_sum(Cpu, const Tensor& x, bool add, Tensor& y) {
  const std::int64_t rows = x.rows(), cols = x.cols();
  require(y.numel() == cols, "column_sum", "of ", x, " into ", y);
  dispatch_floating(x.dtype(), "column_sum", [&]<class X>() {
    dispatch_floating(y.dtype(), "column_sum", [&]<class Y>() {
      using C = compute_type<X>;
      const X* from = x.as<X>();
      Y* to = y.as<Y>();
#pragma omp parallel for schedule(static) if (rows * cols > 32768)
      for (std::int64_t first = 0; first < cols; first += width) {
        const std::int64_t n = std::min(width, cols - first);
        C total[width] = {};
        for (std::int64_t begin = 0; begin < rows; begin += run) {
          C part[width] = {};
          for (std::int64_t r = begin; r < std::min(rows, begin + run); ++r)
            for (std::int64_t c = 0; c < n; ++c) part[c] += static_cast<C>(from[r * cols + first + c]);
          for (std::int64_t c = 0; c < n; ++c) total[c] += part[c];
        }
        for (std::int64_t c = 0; c < n; ++c)
          to[first + c] = static_cast<Y>(total[c] + (add ? static_cast<C>(to[first + c]) : C{0}));
      }
    });
  });
}

}  // namespace chorus::kernel
