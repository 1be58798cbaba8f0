#include <chorus/tensor/kernels/ctc.h>
#include <chorus/tensor/kernels/wide_range.h>
#include <omp.h>

#include <cmath>
#include <limits>

namespace chorus::kernel {
namespace {

constexpr std::int64_t block = lanes<double>;

template <class T>
compute_type<T> row_max(const T* x, std::int64_t n) {
  using C = compute_type<T>;
  constexpr C lowest = -std::numeric_limits<C>::infinity();
  Vec<C> best = all(lowest);
  for_vectors<C>(
      n, [&](std::int64_t i, auto extent) { best = maximum<C>(keep<C>(load<C>(x + i, extent), extent, lowest), best); });
  return maximum_of<C>(best);
}

/// log(sum of e^x); with `gradient`, also scale * softmax(x).
template <class T>
double row_softmax(const T* x, std::int64_t n, double scale, T* gradient) {
  using C = compute_type<T>;
  const C highest = row_max(x, n);
  Vec<C> total{};
  for_vectors<C>(n, [&](std::int64_t i, auto extent) { total += keep<C>(exp<C>(load<C>(x + i, extent) - highest), extent); });
  double sum_of_powers = 0;  // in double: beside a sure symbol's 1, the others are all there is of the loss
  for (int i = 0; i < lanes<C>; ++i) sum_of_powers += static_cast<double>(total[i]);
  if (gradient) {
    const C factor = static_cast<C>(scale / sum_of_powers);
    for_vectors<C>(n, [&](std::int64_t i, auto extent) {
      store<C>(gradient + i, exp<C>(load<C>(x + i, extent) - highest) * factor, extent);
    });
  }
  return static_cast<double>(highest) + std::log(sum_of_powers);
}

/// Rows of numbers of wide range. A row is padded by a block of zeros on either side.
struct WideRows {
  double* m;
  std::int64_t* e;
  std::int64_t width;
  static std::int64_t width_for(std::int64_t n) { return (n + block - 1) / block * block + 2 * block; }

  std::int64_t at(std::int64_t row, std::int64_t i) const { return row * width + block + i; }
  WideRange get(std::int64_t row, std::int64_t i) const {
    WideRange value;
    std::memcpy(&value.m, m + at(row, i), sizeof(value.m));
    std::memcpy(&value.e, e + at(row, i), sizeof(value.e));
    return value;
  }
  void set(std::int64_t row, std::int64_t i, WideRange value) const {
    std::memcpy(m + at(row, i), &value.m, sizeof(value.m));
    std::memcpy(e + at(row, i), &value.e, sizeof(value.e));
  }
  void set(std::int64_t row, std::int64_t i, double mantissa, std::int64_t exponent) const {
    m[at(row, i)] = mantissa;
    e[at(row, i)] = exponent;
  }
  void clear(std::int64_t row, std::int64_t i) const { set(row, i, WideRange{Mantissas{}, Exponents{} + zero_exponent}); }
  void clear_row(std::int64_t row) const {
    for (std::int64_t i = -block; i < width - block; i += block) clear(row, i);
  }
};

/// Gives out parts of one thread's workspace.
struct Arena {
  char* next;
  template <class U>
  U* take(std::int64_t n) {
    U* part = reinterpret_cast<U*>(next);
    next += n * std::int64_t{sizeof(U)};
    return part;
  }
  WideRows rows(std::int64_t count, std::int64_t n) {
    const std::int64_t width = WideRows::width_for(n);
    return {take<double>(count * width), take<std::int64_t>(count * width), width};
  }
};

/// Forward-backward for one sequence. States are blank 0, label 0, blank 1, ..., blank L, kept as two arrays. `blanks[i]`
/// comes from itself and label i - 1; label i from itself, blank i, and label i - 1 where that is another symbol.
struct Alignment {
  std::int64_t frames, count;    ///< T, L
  std::int64_t symbols = 0;      ///< distinct labels; symbol number `symbols` is the blank
  std::int32_t *symbol, *token;  ///< of each label; token of each symbol
  double* may_skip;              ///< 1 where label i differs from label i - 1
  double* posterior;             ///< of each symbol in one frame
  WideRows emission;             ///< [T, symbols + 1]
  WideRows blanks, labels;       ///< forward sums [T + 1, L + 1]; row t + 1 is frame t, row 0 is the start
  WideRows later_blanks, later_labels,
      emitted;  ///< one row each: backward sums with emission, and a frame's emissions by label

  static std::int64_t bytes(std::int64_t frames, std::int64_t count, std::int64_t vocabulary) {
    const std::int64_t symbols = std::min(count, vocabulary) + 1, width = WideRows::width_for(count + 1);
    return 16 * (frames * WideRows::width_for(symbols) + (2 * (frames + 1) + 3) * width) + 8 * (2 * width + symbols) +
           8 * (count + symbols) + 64;
  }

  Alignment(Arena arena, std::int64_t frames, std::span<const std::int32_t> targets, std::int64_t vocabulary)
      : frames(frames), count(static_cast<std::int64_t>(targets.size())) {
    const std::int64_t most = std::min(count, vocabulary) + 1;
    emission = arena.rows(frames, most);
    blanks = arena.rows(frames + 1, count + 1);
    labels = arena.rows(frames + 1, count + 1);
    later_blanks = arena.rows(1, count + 1);
    later_labels = arena.rows(1, count + 1);
    emitted = arena.rows(1, count + 1);
    may_skip = arena.take<double>(2 * emitted.width) + block;
    posterior = arena.take<double>(most);
    symbol = arena.take<std::int32_t>(count);
    token = arena.take<std::int32_t>(most);

    std::vector<std::int32_t> sorted(targets.begin(), targets.end());
    std::sort(sorted.begin(), sorted.end());
    sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
    symbols = static_cast<std::int64_t>(sorted.size());
    std::copy(sorted.begin(), sorted.end(), token);
    token[symbols] = static_cast<std::int32_t>(vocabulary - 1);
    std::fill(may_skip - block, may_skip + emitted.width, 0.0);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t label = targets[static_cast<std::size_t>(i)];
      symbol[i] = static_cast<std::int32_t>(std::lower_bound(sorted.begin(), sorted.end(), label) - sorted.begin());
      may_skip[i] = i > 0 && label != targets[static_cast<std::size_t>(i - 1)] ? 1.0 : 0.0;
    }
    emitted.clear_row(0);
  }

  // States from which the end can still be reached and that can be reached in frame t: without this band a third to four
  // fifths of the work would be on zeros.
  std::int64_t first(std::int64_t t) const { return std::max<std::int64_t>(0, count - frames + t) / block * block; }
  std::int64_t last(std::int64_t t) const { return std::min(count, t) / block * block + block; }

  template <class T>
  void set_emissions(const T* logits, std::int64_t vocabulary, const double* log_total) {
    for (std::int64_t t = 0; t < frames; ++t)
      for (std::int64_t i = 0; i <= symbols; i += block) {
        double x[block];
        std::fill(x, x + block, -std::numeric_limits<double>::infinity());
        for (std::int64_t k = 0; k < std::min(block, symbols + 1 - i); ++k)
          x[k] = static_cast<double>(logits[t * vocabulary + token[i + k]]) - log_total[t];
        emission.set(t, i, wide_exp(load<double>(x)));
      }
  }

  void emit(std::int64_t t) {
    for (std::int64_t i = first(t); i < std::min(count, last(t)); ++i) {
      const std::int64_t from = emission.at(t, symbol[i]);
      emitted.set(0, i, emission.m[from], emission.e[from]);
    }
  }
  WideRange blank_emission(std::int64_t t) const {
    const std::int64_t from = emission.at(t, symbols);
    return {all<double>(emission.m[from]), Exponents{} + emission.e[from]};
  }
  WideRange if_skipping(WideRange x, std::int64_t i) const {
    x.m *= load<double>(may_skip + i);
    return x;
  }

  void forward() {
    blanks.clear_row(0);
    labels.clear_row(0);
    blanks.set(0, 0, 1.0, 0);
    for (std::int64_t t = 0; t < frames; ++t) {
      emit(t);
      const WideRange blank = blank_emission(t);
      for (std::int64_t i = first(t); i < last(t); i += block) {
        const WideRange before = labels.get(t, i - 1), here = blanks.get(t, i);
        blanks.set(t + 1, i, normalised((here + before) * blank));
        labels.set(t + 1, i, normalised((labels.get(t, i) + (here + if_skipping(before, i))) * emitted.get(0, i)));
      }
      for (const std::int64_t i : {first(t) - block, last(t)}) {
        blanks.clear(t + 1, i);
        labels.clear(t + 1, i);
      }
    }
  }

  /// Runs backward and calls with_frame(t) when `posterior` holds the probabilities of the symbols in frame t.
  template <class F>
  void backward(double mantissa, std::int64_t exponent, F&& with_frame) {
    later_blanks.clear_row(0);
    later_labels.clear_row(0);
    later_blanks.set(0, count, 1.0, 0);
    const double inverse = 1 / mantissa;
    for (std::int64_t t = frames - 1; t >= 0; --t) {
      emit(t);
      const WideRange blank = blank_emission(t);
      std::fill(posterior, posterior + symbols + 1, 0.0);
      Mantissas blank_posterior{};
      for (std::int64_t i = first(t); i < last(t); i += block) {
        const WideRange labels_here = later_labels.get(0, i), blanks_here = later_blanks.get(0, i);
        const WideRange after_blank = blanks_here + labels_here;
        const WideRange after_label =
            labels_here + (later_blanks.get(0, i + 1) + if_skipping(later_labels.get(0, i + 1), i + 1));
        const WideRange via_blank = blanks.get(t + 1, i) * after_blank, via_label = labels.get(t + 1, i) * after_label;
        blank_posterior += via_blank.m * inverse * power_of_two(via_blank.e - exponent);
        const Mantissas label_posterior = via_label.m * inverse * power_of_two(via_label.e - exponent);
        for (std::int64_t k = 0; k < std::min(block, count - i); ++k) posterior[symbol[i + k]] += label_posterior[k];
        later_blanks.set(0, i, normalised(after_blank * blank));
        later_labels.set(0, i, normalised(after_label * emitted.get(0, i)));
      }
      posterior[symbols] = sum<double>(blank_posterior);
      with_frame(t);
    }
  }

  /// P(labels | frames) after `forward`, as mantissa and exponent.
  std::pair<double, std::int64_t> probability() const {
    const WideRange both = normalised(blanks.get(frames, count) + labels.get(frames, count - 1));
    return {both.m[0], both.e[0]};
  }
};

}  // namespace

std::vector<double> ctc(Cpu, const Tensor& logits, const Rows& rows, const CtcTargets& targets,
                        const std::vector<char>& feasible, double scale, Tensor& gradient) {
  const std::int64_t frames = logits.rows(), vocabulary = logits.cols(), sequences = rows.sequences();
  std::vector<double> losses(static_cast<std::size_t>(sequences));
  Context& context = logits.context();
  std::int64_t bytes = 0;
  for (std::int64_t s = 0; s < sequences; ++s) {
    const auto u = static_cast<std::size_t>(s);
    if (feasible[u])
      bytes = std::max(bytes, Alignment::bytes(rows.length(s), static_cast<std::int64_t>(targets.of(u).size()), vocabulary));
  }
  bytes = (bytes + 63) / 64 * 64;
  const int threads =
      static_cast<int>(std::clamp<std::int64_t>(omp_get_max_threads(), 1, std::max<std::int64_t>(1, sequences)));
  const Tensor workspace = Tensor::empty(context, {threads * bytes / 8}, DType::f64, Category::workspace);
  const Tensor totals = Tensor::empty(context, {frames}, DType::f64, Category::workspace);
  double* total = totals.as<double>();

  dispatch_floating(logits.dtype(), "ctc_loss", [&]<class T>() {
    using C = compute_type<T>;
    const T* x = logits.as<const T>();
    T* dx = gradient ? gradient.as<T>() : nullptr;
    const std::int32_t* index = rows.index.as<const std::int32_t>();
#pragma omp parallel for schedule(static) if (frames * vocabulary > parallel_elements)
    for (std::int64_t t = 0; t < frames; ++t) {
      T* to = dx ? dx + t * vocabulary : nullptr;
      if (feasible[static_cast<std::size_t>(index[2 * t])]) {
        total[t] = row_softmax(x + t * vocabulary, vocabulary, scale, to);
      } else if (to) {
        std::fill(to, to + vocabulary, static_cast<T>(C{0}));
      }
    }
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (frames * lanes <double> > 1024)
    for (std::int64_t s = 0; s < sequences; ++s) {
      const auto u = static_cast<std::size_t>(s);
      if (!feasible[u]) continue;
      const std::int64_t begin = rows.begin(s), n = rows.length(s);
      if (!std::all_of(total + begin, total + begin + n, [](double v) { return std::isfinite(v); })) {
        losses[u] = std::numeric_limits<double>::quiet_NaN();
        continue;
      }
      Alignment paths({static_cast<char*>(workspace.data()) + omp_get_thread_num() * bytes}, n, targets.of(u), vocabulary);
      paths.set_emissions(x + begin * vocabulary, vocabulary, total + begin);
      paths.forward();
      const auto [mantissa, exponent] = paths.probability();
      losses[u] = -(std::log(mantissa) + static_cast<double>(exponent) * 0.6931471805599453);
      if (mantissa == 0) losses[u] = std::numeric_limits<double>::infinity();
      if (!dx || mantissa == 0) continue;
      paths.backward(mantissa, exponent, [&](std::int64_t t) {
        T* row = dx + (begin + t) * vocabulary;
        for (std::int64_t k = 0; k <= paths.symbols; ++k) {
          const std::int64_t at = paths.emission.at(t, k);
          const double p = paths.emission.m[at] * power_of_two(Exponents{} + paths.emission.e[at])[0];
          row[paths.token[k]] = static_cast<T>(static_cast<C>(scale * (p - paths.posterior[k])));
        }
      });
    }
  });
  return losses;
}

std::vector<std::int32_t> row_argmax(Cpu, const Tensor& x) {
  std::vector<std::int32_t> best(static_cast<std::size_t>(x.rows()));
  dispatch_floating(x.dtype(), "argmax", [&]<class T>() {
    using C = compute_type<T>;
    const T* from = x.as<const T>();
    const std::int64_t rows = x.rows(), cols = x.cols();
#pragma omp parallel for schedule(static) if (rows * cols > parallel_elements)
    for (std::int64_t r = 0; r < rows; ++r) {
      const C highest = row_max(from + r * cols, cols);
      std::int32_t c = 0;
      while (c + 1 < cols && static_cast<C>(from[r * cols + c]) != highest) ++c;
      best[static_cast<std::size_t>(r)] = c;
    }
  });
  return best;
}

}  // namespace chorus::kernel
