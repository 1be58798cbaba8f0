#include <chorus/tensor/kernels/depthwise.h>
#include <chorus/tensor/kernels/depthwise_rows.h>

namespace chorus::kernel {
namespace {

constexpr std::int64_t rows_per_task = 32, rows_per_chunk = 128;
constexpr int tile = 8;

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

const auto row_or = [](const auto* base, const auto* zero, std::int64_t t, std::int64_t first, std::int64_t last,
                       std::int64_t width) { return t >= first && t < last ? base + t * width : zero; };

}  // namespace

void depthwise_conv1d(Cpu, const Tensor& x, const Rows& rows, const Tensor& weight, const Tensor& bias, int pad, bool flip,
                      Tensor& y) {
  dispatch_floating(x.dtype(), "depthwise_conv1d", [&]<class T>() {
    const std::int64_t channels = x.cols();
    const int taps = static_cast<int>(weight.size(0));
    const T* from = x.as<const T>();
    const T* b = bias ? bias.as<const T>() : nullptr;
    T* to = y.as<T>();
    const std::vector<T> zero(static_cast<std::size_t>(channels));
    std::vector<const T*> w;
    for (int j = 0; j < taps; ++j) w.push_back(weight.as<const T>() + (flip ? taps - 1 - j : j) * channels);
    const auto pieces = pieces_by_position(rows, rows_per_task);
#pragma omp parallel if (x.numel() * taps > parallel_elements)
    {
      std::vector<const T*> under(static_cast<std::size_t>(tile + taps - 1));
#pragma omp for schedule(static)
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        const Piece piece = pieces[p];
        for (std::int64_t t = piece.begin; t < piece.end; t += tile) {
          for (int i = 0; i < tile + taps - 1; ++i)
            under[static_cast<std::size_t>(i)] = row_or(from, zero.data(), t + i - pad, piece.first, piece.last, channels);
          T* result[tile];
          for (int r = 0; r < tile; ++r) result[r] = to + (t + r) * channels;
          weighted_rows<T, tile>(taps, w.data(), under.data(), 1, b, result,
                                 static_cast<int>(std::min<std::int64_t>(tile, piece.end - t)), channels);
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
    const std::vector<T> zero(static_cast<std::size_t>(channels));
    const auto pieces = pieces_by_position(rows, rows_per_chunk);
    const auto count = static_cast<std::int64_t>(pieces.size());
    const Tensor parts = Tensor::empty(x.context(), {count, size}, dw.dtype(), Category::workspace);
    C* part = parts.as<C>();
#pragma omp parallel if (x.numel() * taps > parallel_elements)
    {
      std::vector<const T*> under, given;
#pragma omp for schedule(static)
      for (std::int64_t p = 0; p < count; ++p) {
        const Piece piece = pieces[static_cast<std::size_t>(p)];
        under.clear();
        given.clear();
        for (std::int64_t t = piece.begin; t < piece.end; ++t) given.push_back(g + t * channels);
        for (std::int64_t t = piece.begin - pad; t < piece.end - pad + taps - 1; ++t)
          under.push_back(row_or(from, zero.data(), t, piece.first, piece.last, channels));
        row_products<T>(taps, piece.end - piece.begin, given.data(), under.data(), 1, channels, part + p * size);
      }
    }
    sum_parts(part, count, size, add, dw.as<C>());
  });
}

}  // namespace chorus::kernel
