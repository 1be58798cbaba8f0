#include <chorus/tensor/kernels/depthwise.h>
#include <chorus/tensor/kernels/depthwise_rows.h>

namespace chorus::kernel {
namespace {

/// One packed tensor of [T, bins * C] with its rows: finds the C channels of a (time, bin) of a sequence, zeros outside.
template <class T>
struct Plane {
  T* base;
  const Rows& rows;
  std::int64_t bins, channels;
  const T* zero;
  T* at(std::int64_t sequence, std::int64_t t, std::int64_t f) const {
    return base + ((rows.begin(sequence) + t) * bins + f) * channels;
  }
  const T* or_zero(std::int64_t sequence, std::int64_t t, std::int64_t f) const {
    return t >= 0 && t < rows.length(sequence) && f >= 0 && f < bins ? at(sequence, t, f) : zero;
  }
};

std::int64_t halved(std::int64_t n) { return n > 0 ? (n - 1) / 2 + 1 : 0; }
std::int64_t sequence_of(const Rows& rows, std::int64_t r) { return rows.index.as<const std::int32_t>()[2 * r]; }
std::int64_t position_of(const Rows& rows, std::int64_t r) { return rows.index.as<const std::int32_t>()[2 * r + 1]; }

}  // namespace

void depthwise_conv2d(Cpu, const Tensor& x, const Rows& in, const Rows& out, const Tensor& weight, const Tensor& bias,
                      std::int64_t bins, Tensor& y) {
  dispatch_floating(x.dtype(), "depthwise_conv2d_subsample", [&]<class T>() {
    const std::int64_t channels = x.cols() / bins, rows = y.rows(), out_bins = halved(bins);
    const std::vector<T> zero(static_cast<std::size_t>(channels));
    const Plane<const T> from{x.as<const T>(), in, bins, channels, zero.data()};
    const Plane<T> to{y.as<T>(), out, out_bins, channels, nullptr};
    const T* b = bias ? bias.as<const T>() : nullptr;
    const T* w[9];
    for (int k = 0; k < 9; ++k) w[k] = weight.as<const T>() + k * channels;
#pragma omp parallel for schedule(static) if (y.numel() * 9 > parallel_elements)
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t s = sequence_of(out, r), t = position_of(out, r);
      for (std::int64_t f = 0; f < out_bins; f += row_tile) {
        const T* under[9 * row_tile];
        T* result[row_tile];
        for (int i = 0; i < row_tile; ++i) {
          result[i] = to.at(s, t, f + i);
          for (int k = 0; k < 9; ++k) under[k * row_tile + i] = from.or_zero(s, 2 * t + k / 3 - 1, 2 * (f + i) + k % 3 - 1);
        }
        weighted_rows<row_tile>(9, w, under, row_tile, b, result,
                                static_cast<int>(std::min<std::int64_t>(row_tile, out_bins - f)), channels);
      }
    }
  });
}

void depthwise_conv2d_input(Cpu, const Tensor& dy, const Rows& in, const Rows& out, const Tensor& weight, std::int64_t bins,
                            Tensor& dx) {
  dispatch_floating(dy.dtype(), "depthwise_conv2d_subsample", [&]<class T>() {
    const std::int64_t channels = dx.cols() / bins, rows = dx.rows(), out_bins = halved(bins);
    const std::vector<T> zero(static_cast<std::size_t>(channels));
    const Plane<const T> from{dy.as<const T>(), out, out_bins, channels, zero.data()};
    const Plane<T> to{dx.as<T>(), in, bins, channels, nullptr};
#pragma omp parallel for schedule(static) if (dx.numel() * 4 > parallel_elements)
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t s = sequence_of(in, r), t = position_of(in, r);
      for (std::int64_t parity = 0; parity < 2; ++parity) {
        // Tap a of dim n reaches position p from output (p + 1 - a) / 2: taps 0 and 2 reach odd positions, tap 1 even ones.
        int a_of[4], b_of[4], taps = 0;
        for (int a = t % 2 == 0 ? 1 : 0; a < 3; a += 2)
          for (int b = parity == 0 ? 1 : 0; b < 3; b += 2) a_of[taps] = a, b_of[taps] = b, ++taps;
        const T* w[4];
        for (int k = 0; k < taps; ++k) w[k] = weight.as<const T>() + (3 * a_of[k] + b_of[k]) * channels;
        for (std::int64_t f = parity; f < bins; f += 2 * row_tile) {
          const T* under[4 * row_tile];
          T* result[row_tile];
          for (int i = 0; i < row_tile; ++i) {
            result[i] = to.at(s, t, f + 2 * i);
            for (int k = 0; k < taps; ++k)
              under[k * row_tile + i] = from.or_zero(s, (t + 1 - a_of[k]) / 2, (f + 2 * i + 1 - b_of[k]) / 2);
          }
          const int count = static_cast<int>(std::min<std::int64_t>(row_tile, (bins - f + 1) / 2));
          weighted_rows<row_tile>(taps, w, under, row_tile, static_cast<const T*>(nullptr), result, count, channels);
        }
      }
    }
  });
}

void depthwise_conv2d_weight(Cpu, const Tensor& x, const Tensor& dy, const Rows& in, const Rows& out, std::int64_t bins,
                             bool add, Tensor& dw) {
  dispatch_floating(x.dtype(), "depthwise_conv2d_subsample", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t channels = x.cols() / bins, rows = dy.rows(), out_bins = halved(bins), size = 9 * channels;
    const std::int64_t rows_per_chunk = std::max<std::int64_t>(1, 128 / out_bins),
                       count = (rows + rows_per_chunk - 1) / rows_per_chunk;
    const std::vector<T> zero(static_cast<std::size_t>(channels));
    const Plane<const T> from{x.as<const T>(), in, bins, channels, zero.data()};
    const Plane<const T> given{dy.as<const T>(), out, out_bins, channels, nullptr};
    const Tensor parts = Tensor::empty(x.context(), {count * size}, dw.dtype(), Category::workspace);
    C* part = parts.as<C>();
#pragma omp parallel if (dy.numel() * 9 > parallel_elements)
    {
      std::vector<const T*> under, gradient;
#pragma omp for schedule(static)
      for (std::int64_t p = 0; p < count; ++p) {
        under.clear();
        gradient.clear();
        for (std::int64_t r = p * rows_per_chunk; r < std::min(rows, (p + 1) * rows_per_chunk); ++r) {
          const std::int64_t s = sequence_of(out, r), t = position_of(out, r);
          for (std::int64_t f = 0; f < out_bins; ++f) {
            gradient.push_back(given.at(s, t, f));
            for (int k = 0; k < 9; ++k) under.push_back(from.or_zero(s, 2 * t + k / 3 - 1, 2 * f + k % 3 - 1));
          }
        }
        row_products<T>(9, static_cast<std::int64_t>(gradient.size()), gradient.data(), under.data(), 9, channels,
                        part + p * size);
      }
    }
    sum_parts(part, count, size, add, dw.as<C>());
  });
}

}  // namespace chorus::kernel
