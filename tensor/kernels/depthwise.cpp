#include <chorus/tensor/kernels/depthwise.h>
#include <chorus/tensor/kernels/depthwise_rows.h>

namespace chorus::kernel {
namespace {

constexpr std::int64_t rows_per_task = 32, rows_per_chunk = 128;

/// Rows [begin, end) of one sequence that owns [first, last).
struct Piece {
  std::int64_t begin, end, first, last;
};

/// Cuts sequences into pieces of at most `size` rows, counted from each sequence's own start.
std::vector<Piece> pieces_by_position(const Rows& rows, std::int64_t size) {
  std::vector<Piece> pieces;
  const auto offsets = rows.offsets.span<const std::int32_t>();
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
    for (std::int64_t t = offsets[s]; t < offsets[s + 1]; t += size)
      pieces.push_back({t, std::min<std::int64_t>(t + size, offsets[s + 1]), offsets[s], offsets[s + 1]});
  return pieces;
}

/// A run of rows in the compute type. Rows of bf16 are converted once here instead of under each tap.
template <class T>
class ComputeRows {
 public:
  using C = compute_type<T>;
  /// Rows [begin, end) of a matrix; rows outside read as zero.
  void read(const T* matrix, std::int64_t begin, std::int64_t end, std::int64_t channels) {
    begin_ = begin;
    end_ = std::max(begin, end);
    channels_ = channels;
    zero_.resize(static_cast<std::size_t>(channels));
    const std::int64_t n = (end_ - begin_) * channels;
    if constexpr (std::is_same_v<T, C>) {
      first_ = matrix + begin * channels;
    } else {
      own_.resize(static_cast<std::size_t>(n));
      for_vectors<C>(n, [&](std::int64_t i, auto extent) {
        store<C>(own_.data() + i, load<C>(matrix + begin * channels + i, extent), extent);
      });
      first_ = own_.data();
    }
  }
  const C* operator[](std::int64_t row) const {
    return row >= begin_ && row < end_ ? first_ + (row - begin_) * channels_ : zero_.data();
  }

 private:
  std::int64_t begin_ = 0, end_ = 0, channels_ = 0;
  const C* first_ = nullptr;
  std::vector<C> own_, zero_;
};

}  // namespace

void depthwise_conv1d(Cpu, const Tensor& x, const Rows& rows, const Tensor& weight, const Tensor& bias, int pad, bool flip,
                      Tensor& y) {
  if (y.numel() == 0) return;  // the weight may have no memory: layouts are checked without
  dispatch_floating(x.dtype(), "depthwise_conv1d", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t channels = x.cols();
    const int taps = static_cast<int>(weight.size(0));
    const T* from = x.as<const T>();
    T* to = y.as<T>();
    ComputeRows<T> weights, biases;
    weights.read(weight.as<const T>(), 0, taps, channels);
    if (bias) biases.read(bias.as<const T>(), 0, 1, channels);
    std::vector<const C*> w;
    for (int j = 0; j < taps; ++j) w.push_back(weights[flip ? taps - 1 - j : j]);
    const C* b = bias ? biases[0] : nullptr;
    const auto pieces = pieces_by_position(rows, rows_per_task);
#pragma omp parallel if (x.numel() * taps > parallel_elements)
    {
      ComputeRows<T> inputs;
      std::vector<const C*> under(static_cast<std::size_t>(row_tile + taps - 1));
#pragma omp for schedule(static)
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        const Piece piece = pieces[p];
        inputs.read(from, std::max(piece.first, piece.begin - pad), std::min(piece.last, piece.end - pad + taps - 1), channels);
        for (std::int64_t t = piece.begin; t < piece.end; t += row_tile) {
          for (int i = 0; i < row_tile + taps - 1; ++i) under[static_cast<std::size_t>(i)] = inputs[t + i - pad];
          const int count = static_cast<int>(std::min<std::int64_t>(row_tile, piece.end - t));
          T* result[row_tile];
          for (int r = 0; r < count; ++r) result[r] = to + (t + r) * channels;
          weighted_rows<row_tile>(taps, w.data(), under.data(), 1, b, result, count, channels);
        }
      }
    }
  });
}

void depthwise_conv1d_weight(Cpu, const Tensor& x, const Tensor& dy, const Rows& rows, int pad, bool add, Tensor& dw) {
  dispatch_floating(x.dtype(), "depthwise_conv1d", [&]<class T>() {
    using C = compute_type<T>;
    const std::int64_t channels = x.cols(), size = dw.numel();
    const int taps = static_cast<int>(dw.size(0));
    const T *from = x.as<const T>(), *g = dy.as<const T>();
    const auto pieces = pieces_by_position(rows, rows_per_chunk);
    const auto count = static_cast<std::int64_t>(pieces.size());
    const Tensor parts = Tensor::empty(x.context(), {count * size}, dw.dtype(), Category::workspace);
    C* part = parts.as<C>();
#pragma omp parallel if (x.numel() * taps > parallel_elements)
    {
      ComputeRows<T> inputs, gradients;
      std::vector<const C*> under, given;
#pragma omp for schedule(static)
      for (std::int64_t p = 0; p < count; ++p) {
        const Piece piece = pieces[static_cast<std::size_t>(p)];
        inputs.read(from, std::max(piece.first, piece.begin - pad), std::min(piece.last, piece.end - pad + taps - 1), channels);
        gradients.read(g, piece.begin, piece.end, channels);
        under.clear();
        given.clear();
        for (std::int64_t t = piece.begin; t < piece.end; ++t) given.push_back(gradients[t]);
        for (std::int64_t t = piece.begin - pad; t < piece.end - pad + taps - 1; ++t) under.push_back(inputs[t]);
        row_products<C>(taps, piece.end - piece.begin, given.data(), under.data(), 1, channels, part + p * size);
      }
    }
    sum_parts(part, count, size, add, dw.as<C>());
  });
}

}  // namespace chorus::kernel
