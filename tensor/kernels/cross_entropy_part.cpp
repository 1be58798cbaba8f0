#include <chorus/tensor/kernels/cross_entropy_part.h>
#include <chorus/tensor/kernels/vec.h>

#include <cmath>

namespace chorus::kernel {
namespace {

template <class C>
RowStatistics statistics_of(C* z, std::int64_t n, std::int64_t label) {
  if (n == 0) return {};
  Vec<C> top = all(z[0]);
  for_vectors<C>(n, [&](std::int64_t i, auto extent) { top = maximum<C>(top, keep<C>(load<C>(z + i, extent), extent, z[0])); });
  const C largest = maximum_of<C>(top);
  RowStatistics row{.max = static_cast<double>(largest), .chosen = label < 0 ? 0 : static_cast<double>(z[label])};
  Vec<C> below{}, exps{};  // sums relative to the largest: those of large logits themselves would lose digits
  for_vectors<C>(n, [&](std::int64_t i, auto extent) {
    const Vec<C> d = load<C>(z + i, extent) - largest, e = exp<C>(d);
    store<C>(z + i, e, extent);
    below += keep<C>(d, extent);
    exps += keep<C>(e, extent);
  });
  row.exps = static_cast<double>(sum<C>(exps));
  row.sum = static_cast<double>(sum<C>(below)) + static_cast<double>(n) * row.max;
  return row;
}

/// `even` is smoothing / classes.
template <class C, class G>
void row_gradient(const C* exps, std::int64_t n, std::int64_t label, double factor, double even, double smoothing,
                  G* gradient) {
  const C f = static_cast<C>(factor), lowered = static_cast<C>(even);
  const C at_label = label < 0 ? C{0} : exps[label] * f - lowered - static_cast<C>(1 - smoothing);  // gradient may be exps
  for_vectors<C>(n,
                 [=](std::int64_t i, auto extent) { store<C>(gradient + i, load<C>(exps + i, extent) * f - lowered, extent); });
  if (label >= 0) gradient[label] = static_cast<G>(at_label);
}

}  // namespace

void row_statistics(Cpu, Tensor& logits, std::span<const std::int32_t> labels, std::span<RowStatistics> statistics) {
  const std::int64_t rows = logits.rows(), n = logits.cols();
  const auto count = static_cast<std::size_t>(rows);
  require(labels.size() == count && statistics.size() == count, "row_statistics", logits, " with ", labels.size(),
          " labels and room for ", statistics.size(), " statistics");
  const Span span(logits.context().trace, "cross entropy", 0, static_cast<double>(logits.bytes()) * 2);
  dispatch<float, double>(logits.dtype(), "row_statistics", [&]<class C>() {
    C* z = logits.as<C>();
#pragma omp parallel for schedule(static) if (rows * n > 16384)
    for (std::int64_t r = 0; r < rows; ++r)
      statistics[static_cast<std::size_t>(r)] = statistics_of(z + r * n, n, labels[static_cast<std::size_t>(r)]);
  });
}

void cross_entropy_part(Cpu, const Tensor& exponentials, std::span<const std::int32_t> labels,
                        std::span<const RowStatistics> own, std::span<const RowStatistics> all, std::int64_t classes,
                        double smoothing, Tensor* gradient, std::span<double> losses) {
  const std::int64_t rows = exponentials.rows(), n = exponentials.cols();
  const double even = smoothing / static_cast<double>(classes);
  for (std::size_t r = 0; r < losses.size(); ++r) {
    const RowStatistics& a = all[r];
    losses[r] = std::log(a.exps) - (1 - smoothing) * (a.chosen - a.max);
    if (smoothing > 0) losses[r] -= smoothing * (a.sum / static_cast<double>(classes) - a.max);
  }
  if (!gradient || n == 0) return;
  const Span span(exponentials.context().trace, "cross entropy", 0,
                  static_cast<double>(exponentials.bytes() + gradient->bytes()));
  dispatch<float, double>(exponentials.dtype(), "cross_entropy_part", [&]<class C>() {
    dispatch_floating(gradient->dtype(), "cross_entropy_part", [&]<class G>() {
      const C* exps = exponentials.as<C>();
      G* to = gradient->as<G>();
#pragma omp parallel for schedule(static) if (rows * n > 16384)
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto at = static_cast<std::size_t>(r);
        row_gradient(exps + r * n, n, labels[at], std::exp(own[at].max - all[at].max) / all[at].exps, even, smoothing,
                     to + r * n);
      }
    });
  });
}

}  // namespace chorus::kernel
