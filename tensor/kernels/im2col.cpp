#include <chorus/tensor/kernels/im2col.h>
#include <chorus/tensor/kernels/vec.h>

namespace chorus::kernel {
namespace {

/// Where output row r comes from: rows [first, first + n) of the input, and its own position there times the stride.
struct Place {
  std::int64_t sequence, position;
  Place(const Rows& rows, std::int64_t r)
      : sequence(rows.index.as<const std::int32_t>()[2 * r]), position(rows.index.as<const std::int32_t>()[2 * r + 1]) {}
};

/// Calls f.operator()<U>() with an unsigned type of the element's size: copying looks at no values.
template <class F>
void by_size(DType t, F&& f) {
  switch (size_of(t)) {
    case 2: return f.template operator()<std::uint16_t>();
    case 4: return f.template operator()<std::uint32_t>();
    case 8: return f.template operator()<std::uint64_t>();
    default: fail("im2col", "does not take ", t);
  }
}

/// memcpy costs more than the copy itself for the few elements of a one-channel tap.
template <class U>
void copy(const U* from, std::int64_t n, U* to) {
  if (n > 16) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(U));
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i] = from[i];
  }
}
template <class U>
void clear(std::int64_t n, U* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = 0;
}

/// to[j * width ...] = from[(first + j) * width ...] for j in [0, taps), zero where first + j lies outside [0, n).
template <class U>
void copy_taps(const U* from, std::int64_t n, std::int64_t first, std::int64_t taps, std::int64_t width, U* to) {
  const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, taps), end = std::clamp<std::int64_t>(n - first, begin, taps);
  clear(begin * width, to);
  if (begin < end) copy(from + (first + begin) * width, (end - begin) * width, to + begin * width);
  clear((taps - end) * width, to + end * width);
}

}  // namespace

void im2col(Cpu, const Tensor& x, const Rows& in, const Rows& out, Taps taps, Tensor& cols) {
  by_size(x.dtype(), [&]<class U>() {
    const U* from = static_cast<const U*>(x.data());
    U* to = static_cast<U*>(cols.data());
    const std::int64_t channels = x.cols(), rows = cols.rows(), width = cols.cols();
#pragma omp parallel for schedule(static) if (rows * width > parallel_elements)
    for (std::int64_t r = 0; r < rows; ++r) {
      const Place at(out, r);
      copy_taps(from + in.begin(at.sequence) * channels, in.length(at.sequence), at.position * taps.stride - taps.pad,
                taps.kernel, channels, to + r * width);
    }
  });
}

void im2col_3x3(Cpu, const Tensor& x, const Rows& in, const Rows& out, std::int64_t bins, Tensor& cols) {
  by_size(x.dtype(), [&]<class U>() {
    const U* from = static_cast<const U*>(x.data());
    U* to = static_cast<U*>(cols.data());
    const std::int64_t channels = x.cols() / bins, width = 9 * channels, out_bins = (bins - 1) / 2 + 1;
    const std::int64_t rows = cols.rows() / out_bins;
#pragma omp parallel for schedule(static) if (rows * out_bins * width > parallel_elements)
    for (std::int64_t r = 0; r < rows; ++r) {
      const Place at(out, r);
      const std::int64_t begin = in.begin(at.sequence), n = in.length(at.sequence);
      for (std::int64_t a = 0; a < 3; ++a) {
        const std::int64_t t = 2 * at.position + a - 1;
        const bool inside = t >= 0 && t < n;
        for (std::int64_t f = 0; f < out_bins; ++f) {
          U* target = to + (r * out_bins + f) * width + a * 3 * channels;
          copy_taps(from + (begin + t) * bins * channels, inside ? bins : 0, 2 * f - 1, 3, channels, target);
        }
      }
    }
  });
}

namespace {

/// to[c] = sum of term[k][c] in order, for c in [0, n).
template <class T>
void add_terms(const compute_type<T>* const* term, int terms, std::int64_t n, T* to) {
  using C = compute_type<T>;
  for_vectors<C>(n, [&](std::int64_t c, auto extent) {
    Vec<C> total{};
    for (int k = 0; k < terms; ++k) total += load<C>(term[k] + c, extent);
    store<C>(to + c, total, extent);
  });
}

}  // namespace

void col2im(Cpu, const Tensor& cols, const Rows& in, const Rows& out, Taps taps, Tensor& dx) {
  dispatch_floating(dx.dtype(), "col2im", [&]<class T>() {
    using C = compute_type<T>;
    const C* from = cols.as<const C>();
    T* to = dx.as<T>();
    const std::int64_t channels = dx.cols(), rows = dx.rows(), width = cols.cols();
#pragma omp parallel if (rows * width > parallel_elements)
    {
      std::vector<const C*> term(static_cast<std::size_t>(taps.kernel));
#pragma omp for schedule(static)
      for (std::int64_t r = 0; r < rows; ++r) {
        const Place at(in, r);
        const std::int64_t begin = out.begin(at.sequence), n = out.length(at.sequence);
        int terms = 0;
        for (int j = 0; j < taps.kernel; ++j) {
          const std::int64_t scaled = at.position + taps.pad - j;
          if (scaled < 0 || scaled % taps.stride != 0 || scaled / taps.stride >= n) continue;
          term[static_cast<std::size_t>(terms++)] = from + (begin + scaled / taps.stride) * width + j * channels;
        }
        add_terms(term.data(), terms, channels, to + r * channels);
      }
    }
  });
}

void col2im_3x3(Cpu, const Tensor& cols, const Rows& in, const Rows& out, std::int64_t bins, Tensor& dx) {
  dispatch_floating(dx.dtype(), "col2im_3x3", [&]<class T>() {
    using C = compute_type<T>;
    const C* from = cols.as<const C>();
    T* to = dx.as<T>();
    const std::int64_t channels = dx.cols() / bins, rows = dx.rows(), width = 9 * channels, out_bins = (bins - 1) / 2 + 1;
#pragma omp parallel for schedule(static) if (rows * bins * channels > parallel_elements)
    for (std::int64_t r = 0; r < rows; ++r) {
      const Place at(in, r);
      const std::int64_t begin = out.begin(at.sequence), n = out.length(at.sequence);
      for (std::int64_t f = 0; f < bins; ++f) {
        const C* term[4];  // an odd position lies under two taps of each dim, an even one under the middle tap only
        int terms = 0;
        for (std::int64_t a = 0; a < 3; ++a) {
          const std::int64_t t2 = at.position + 1 - a;
          if (t2 < 0 || t2 % 2 != 0 || t2 / 2 >= n) continue;
          for (std::int64_t b = 0; b < 3; ++b) {
            const std::int64_t f2 = f + 1 - b;
            if (f2 < 0 || f2 % 2 != 0 || f2 / 2 >= out_bins) continue;
            term[terms++] = from + ((begin + t2 / 2) * out_bins + f2 / 2) * width + (3 * a + b) * channels;
          }
        }
        add_terms(term, terms, channels, to + (r * bins + f) * channels);
      }
    }
  });
}

void narrow_product(Cpu, const Tensor& cols, const Tensor& weight, const Tensor& bias, Tensor& y) {
  if (y.numel() == 0) return;  // the weight may have no memory: layouts are checked without
  constexpr int tile = 8;
  const std::int64_t rows = cols.rows(), width = cols.cols(), outputs = y.cols();
  const bf16 *from = cols.as<const bf16>(), *w = weight.as<const bf16>(), *b = bias ? bias.as<const bf16>() : nullptr;
  bf16* to = y.as<bf16>();
  std::vector<float> turned(static_cast<std::size_t>(width * outputs));  // [K, O]: outputs are the lanes
  for (std::int64_t o = 0; o < outputs; ++o)
    for (std::int64_t k = 0; k < width; ++k)
      turned[static_cast<std::size_t>(k * outputs + o)] = static_cast<float>(w[o * width + k]);
#pragma omp parallel for schedule(static) if (rows * outputs * width > parallel_elements)
  for (std::int64_t first = 0; first < rows; first += tile) {
    const int count = static_cast<int>(std::min<std::int64_t>(tile, rows - first));
    float x[tile * narrow_width] = {};
    for (std::int64_t i = 0; i < count * width; ++i) x[i] = static_cast<float>(from[first * width + i]);
    for_vectors<float>(outputs, [&](std::int64_t o, auto extent) {
      Vec<float> total[tile];
      const Vec<float> start = b ? load<float>(b + o, extent) : Vec<float>{};
      for (int r = 0; r < tile; ++r) total[r] = start;
      for (std::int64_t k = 0; k < width; ++k) {
        const Vec<float> factor = load<float>(turned.data() + k * outputs + o, extent);
        for (int r = 0; r < tile; ++r) total[r] += factor * x[r * width + k];
      }
      for (int r = 0; r < count; ++r) store<float>(to + (first + r) * outputs + o, total[r], extent);
    });
  }
}

}  // namespace chorus::kernel
