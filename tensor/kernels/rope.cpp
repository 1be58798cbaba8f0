#include <chorus/tensor/kernels/rope.h>
#include <chorus/tensor/kernels/vec.h>

#include <algorithm>
#include <cmath>
#include <complex>

namespace chorus::kernel {
namespace {

using Rotations = std::vector<std::complex<double>>;  // one per pair

Rotations rotations(std::int64_t position, const std::vector<double>& frequencies) {
  Rotations z;
  for (const double f : frequencies) z.push_back(std::polar(1.0, static_cast<double>(position) * f));
  return z;
}

}  // namespace

RopeTable rope_table(Cpu, const Tensor& positions, int head_dim, double base, DType type) {
  const auto wanted = positions.span<const std::int32_t>();
  std::vector<std::int32_t> distinct(wanted.begin(), wanted.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());

  const std::int64_t half = head_dim / 2, count = static_cast<std::int64_t>(distinct.size());
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < half; ++i) frequencies.push_back(std::pow(base, -2.0 * static_cast<double>(i) / head_dim));
  // p = 64 high + low: one product of two known rotations instead of a sine and a cosine for every position and pair.
  std::vector<Rotations> low(64);
  Rotations high;
  std::int64_t high_of = -1;
  Context& context = positions.context();
  RopeTable table{Tensor::empty(context, {count, 2 * half}, type), Tensor::empty(context, {positions.numel()}, DType::i32)};
  dispatch<float, double>(type, "rope", [&]<class C>() {
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t p = distinct[static_cast<std::size_t>(k)];
      auto& fine = low[static_cast<std::size_t>(p % 64)];
      if (fine.empty()) fine = rotations(p % 64, frequencies);
      if (high_of != p / 64) high = rotations((high_of = p / 64) * 64, frequencies);
      C* row = table.values.as<C>() + k * 2 * half;
      for (std::int64_t i = 0; i < half; ++i) {
        const auto z = high[static_cast<std::size_t>(i)], w = fine[static_cast<std::size_t>(i)];
        row[i] = static_cast<C>(z.real() * w.real() - z.imag() * w.imag());
        row[half + i] = static_cast<C>(z.real() * w.imag() + z.imag() * w.real());
      }
    }
  });
  for (std::size_t t = 0; t < wanted.size(); ++t)
    table.slots.as<std::int32_t>()[t] =
        static_cast<std::int32_t>(std::lower_bound(distinct.begin(), distinct.end(), wanted[t]) - distinct.begin());
  return table;
}

const RopeTable& RopeTables::find(Cpu device, const Tensor& positions, int head_dim, double base, DType type) {
  for (const Entry& e : entries)
    if (e.positions.data() == positions.data() && e.positions.numel() == positions.numel() && e.head_dim == head_dim &&
        e.base == base && e.table.values.dtype() == type)
      return e.table;
  return entries.emplace_back(Entry{positions, head_dim, base, rope_table(device, positions, head_dim, base, type)}).table;
}

void rope(Cpu, const Tensor& x, const RopeTable& table, int heads, int head_dim, bool back, Tensor& y) {
  dispatch_floating(x.dtype(), "rope", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t n = x.cols(), half = head_dim / 2, rotated = std::int64_t{heads} * head_dim;
    const C sign = back ? C(-1) : C(1);
    parallel_rows(x.rows(), n,
                  [=, x = x.as<T>(), y = y.as<T>(), values = table.values.as<C>(),
                   slots = table.slots.as<std::int32_t>()](std::int64_t t) {
                    const C *cosines = values + slots[t] * 2 * half, *sines = cosines + half;
                    for (std::int64_t first = t * n; first < t * n + rotated; first += head_dim)
                      for_vectors<C>(half, [&](std::int64_t i, auto extent) {
                        const Vec<C> cosine = load<C>(cosines + i, extent), sine = load<C>(sines + i, extent) * sign;
                        const Vec<C> a = load<C>(x + first + i, extent), b = load<C>(x + first + half + i, extent);
                        store<C>(y + first + i, a * cosine - b * sine, extent);
                        store<C>(y + first + half + i, a * sine + b * cosine, extent);
                      });
                    if (x != y) std::copy(x + t * n + rotated, x + (t + 1) * n, y + t * n + rotated);
                  });
  });
}

}  // namespace chorus::kernel
