// Own products: the right operand is packed into panels of 32 columns, tiles of 12 rows by one panel stay in registers. bf16 is
// widened while it is packed, so it costs no pass of its own. Each thread has its part of the result and packs what it needs
// into its own cache: nobody waits.
#include <chorus/tensor/kernels/avx512/tiles.h>
#include <chorus/tensor/kernels/convert.h>
#include <chorus/tensor/kernels/matmul_paths.h>
#include <chorus/tensor/kernels/onednn.h>
#include <omp.h>

#include <algorithm>
#include <optional>

namespace chorus::kernel {
namespace {

using avx512::group_rows;
using avx512::panel_columns;

constexpr std::int64_t panel_values = 192 * 1024;  // packed at a time by a thread: 768 KiB, in its L2
constexpr std::int64_t block_values = 96 * 1024;   // of the left operand at a time: 384 KiB, beside them
constexpr std::int64_t most_rows = 96;             // of the left operand at a time
constexpr double parallel_flops = 1e6;

struct Matrix {
  char* data;
  bool half;
  std::int64_t ld;
  explicit Matrix(const Tensor& t) : data(static_cast<char*>(t.data())), half(t.dtype() == DType::bf16), ld(t.cols()) {}
  Matrix from(std::int64_t row, std::int64_t col) const {
    Matrix part = *this;
    part.data = place(row, col);
    return part;
  }
  char* place(std::int64_t row, std::int64_t col) const { return data + (row * ld + col) * (half ? 2 : 4); }
  avx512::Source at(std::int64_t row, std::int64_t col) const { return {place(row, col), half, ld}; }
};

std::int64_t parts(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

struct Range {
  std::int64_t begin, end;
};
/// Part `index` of `count` parts of [0, whole), cut at multiples of `unit`.
Range part(std::int64_t whole, std::int64_t unit, std::int64_t index, std::int64_t count) {
  const std::int64_t units = parts(whole, unit);
  return {std::min(whole, units * index / count * unit), std::min(whole, units * (index + 1) / count * unit)};
}

/// y (+)= a b for f32 or bf16 y, contracting in blocks of `depth`; bf16 y in one, so that it is rounded once. Rows of the
/// result are those from `first_row` on.
class Product {
 public:
  Product(Form form, MatmulSizes size, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options,
          std::int64_t depth, std::int64_t first_row = 0)
      : form_(form),
        size_(size),
        left_(Matrix(a).from(form == Form::tn ? 0 : first_row, form == Form::tn ? first_row : 0)),
        right_(b),
        y_(y),
        accumulate_(options.accumulate),
        depth_(depth),
        grouped_(form == Form::tn),
        copied_(grouped_ || left_.half),
        panels_once_(std::clamp<std::int64_t>(panel_values / (depth * panel_columns), 1, parts(size.n, panel_columns))),
        rows_once_(std::clamp<std::int64_t>(block_values / depth / group_rows * group_rows, group_rows,
                                            std::min(most_rows, parts(size.m, group_rows) * group_rows))) {
    if (options.bias) bias_.emplace(*options.bias);
  }

  void run(Context& context) const {
    const double flops = 2.0 * static_cast<double>(size_.m) * static_cast<double>(size_.n) * static_cast<double>(size_.k);
    const std::int64_t threads = flops < parallel_flops ? 1 : omp_get_max_threads();
    // Threads share the longer side first, since what the other side needs is packed by each of them; a left operand that is
    // read where it lies costs nothing there.
    const std::int64_t row_units = parts(size_.m, group_rows), column_units = parts(size_.n, panel_columns);
    const bool by_columns = size_.n >= size_.m || !copied_;
    const std::int64_t first = std::min(threads, by_columns ? column_units : row_units);
    const std::int64_t second = std::min(threads / first, by_columns ? row_units : column_units);
    const std::int64_t row_parts = by_columns ? second : first, column_parts = by_columns ? first : second;
    const std::int64_t panel_size = panels_once_ * depth_ * panel_columns, copy_size = copied_ ? rows_once_ * depth_ : 0;
    const Tensor scratch =
        Tensor::empty(context, {row_parts * column_parts * (panel_size + copy_size)}, DType::f32, Category::workspace);
    float* const data = scratch.as<float>();
#pragma omp parallel for schedule(static) num_threads(static_cast <int>(threads))
    for (std::int64_t p = 0; p < row_parts * column_parts; ++p) {
      float* const own = data + p * (panel_size + copy_size);
      compute(part(size_.m, group_rows, p / column_parts, row_parts),
              part(size_.n, panel_columns, p % column_parts, column_parts), own, own + panel_size);
    }
  }

 private:
  void compute(Range rows, Range columns, float* panels, float* copy) const {
    const std::int64_t step = panels_once_ * panel_columns;
    for (std::int64_t k = 0; k < size_.k; k += depth_) {
      const std::int64_t deep = std::min(depth_, size_.k - k);
      for (std::int64_t column = columns.begin; column < columns.end; column += step) {
        const std::int64_t end = std::min(columns.end, column + step);
        for (std::int64_t c = column; c < end; c += panel_columns) {
          const std::int64_t width = std::min(panel_columns, end - c);
          float* const panel = panels + (c - column) * deep;
          if (form_ == Form::nt)
            avx512::pack_panel_transposed(right_.at(c, k), deep, width, panel);
          else
            avx512::pack_panel(right_.at(k, c), deep, width, panel);
        }
        for (std::int64_t row = rows.begin; row < rows.end; row += rows_once_)
          multiply({row, std::min(rows.end, row + rows_once_)}, {column, end}, k, deep, panels, copy);
      }
    }
  }

  void multiply(Range rows, Range columns, std::int64_t k, std::int64_t deep, const float* panels, float* copy) const {
    const std::int64_t count = rows.end - rows.begin;
    if (grouped_)
      for (std::int64_t r = 0; r < count; r += group_rows)
        avx512::pack_group(left_.at(k, rows.begin + r), deep, std::min(group_rows, count - r), copy + r * deep);
    else if (copied_)
      avx512::widen(left_.at(rows.begin, k), count, deep, copy);
    const float* const values = copied_ ? copy : static_cast<const float*>(left_.at(rows.begin, k).data);
    const std::int64_t ld = grouped_ ? 0 : copied_ ? deep : left_.ld;
    for (std::int64_t c = columns.begin; c < columns.end; c += panel_columns)
      avx512::multiply({values, count, ld}, panels + (c - columns.begin) * deep, deep,
                       {.data = y_.place(rows.begin, c),
                        .half = y_.half,
                        .ld = y_.ld,
                        .columns = std::min(panel_columns, columns.end - c),
                        .accumulate = accumulate_ || k > 0,
                        .bias = bias_ && k == 0 ? bias_->place(0, c) : nullptr,
                        .bias_half = bias_ && bias_->half});
  }

  const Form form_;
  const MatmulSizes size_;
  const Matrix left_, right_, y_;
  std::optional<Matrix> bias_;
  const bool accumulate_;
  const std::int64_t depth_;
  const bool grouped_, copied_;  // the left operand: into groups; at all
  const std::int64_t panels_once_, rows_once_;
};

}  // namespace

void matmul_tiled(Form form, MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options) {
  const std::int64_t depth = std::min(sizes.k, contraction_chunk);
  if (y.dtype() == DType::f32 || sizes.k <= 4 * contraction_chunk)
    return Product(form, sizes, a, b, y, options, y.dtype() == DType::f32 ? depth : sizes.k).run(y.context());
  // Sums of several parts are rounded once; in blocks of rows, or of columns of a (tn), so that no second y is needed.
  constexpr std::int64_t step = 1024;
  for (std::int64_t row = 0; row < sizes.m; row += step) {
    const std::int64_t rows = std::min(step, sizes.m - row);
    Tensor total = Tensor::empty(y.context(), {rows, sizes.n}, DType::f32, Category::workspace);
    Product(form, {rows, sizes.n, sizes.k}, a, b, total, {.accumulate = false, .bias = options.bias}, depth, row)
        .run(y.context());
    convert<float, bf16>({total.as<float>(), rows, sizes.n, sizes.n}, {y.as<bf16>() + row * sizes.n, rows, sizes.n, sizes.n},
                         options.accumulate);
  }
}

}  // namespace chorus::kernel
