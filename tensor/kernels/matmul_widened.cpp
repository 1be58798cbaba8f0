// bf16 products through f32: operands are converted block by block into workspaces, exact products of them are summed in
// f32, and the result is rounded once. Converting costs 2-4 % of a product of 1,000 rows.
#include <chorus/tensor/kernels/convert.h>
#include <chorus/tensor/kernels/matmul_paths.h>
#include <chorus/tensor/kernels/onednn.h>

#include <cstring>

namespace chorus::kernel {
namespace {

constexpr std::int64_t row_chunk = 1024;
constexpr std::int64_t block_elements = std::int64_t{1} << 22;  // of b, as f32: 16 MB

Tensor workspace(Context& context, std::int64_t rows, std::int64_t cols) {
  return Tensor::empty(context, {rows, cols}, DType::f32, Category::workspace);
}

Block<const bf16> part(const Tensor& t, std::int64_t row, std::int64_t rows, std::int64_t col, std::int64_t cols) {
  return {t.as<bf16>() + row * t.cols() + col, rows, cols, t.cols()};
}

void widen(Block<const bf16> source, const Tensor& target) {
  convert<bf16, float>(source, {target.as<float>(), source.rows, source.cols, source.cols});
}

/// Writes f32 rows into columns [col, col + result.cols) of y from row `row` on.
void store(Block<const float> result, const Tensor& y, std::int64_t row, std::int64_t col, const MatmulOptions& options) {
  dispatch<float, bf16>(y.dtype(), "matmul", [&]<class Y>() {
    const Block<Y> target{y.as<Y>() + row * y.cols() + col, result.rows, result.cols, y.cols()};
    if (!options.bias) return convert<float, Y>(result, target, options.accumulate);
    dispatch<float, bf16>(options.bias->dtype(), "matmul", [&]<class B>() {
      convert<float, Y, B>(result, target, options.accumulate, options.bias->as<B>() + col);
    });
  });
}

/// y rows = a rows * b or b^T. b is taken in blocks of its rows, so that a whole vocabulary is never converted at once.
void widened_product(Form form, MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options) {
  auto& context = y.context();
  const std::int64_t b_rows = b.rows(),
                     b_step = std::min(b_rows, std::max<std::int64_t>(64, block_elements / b.cols() / 64 * 64));
  const bool nt = form == Form::nt;
  const Tensor b_block = workspace(context, b_step, b.cols());
  const std::int64_t most = padded_rows(std::min(sizes.m, row_chunk));
  const Tensor a_block = workspace(context, most, nt ? sizes.k : b_step),
               y_block = workspace(context, most, nt ? b_step : sizes.n);
  for (std::int64_t row = 0; row < sizes.m; row += row_chunk) {
    const std::int64_t rows = std::min(row_chunk, sizes.m - row), padded = padded_rows(rows);
    if (nt) widen(part(a, row, rows, 0, sizes.k), a_block);
    for (std::int64_t at = 0; at < b_rows; at += b_step) {
      const std::int64_t count = std::min(b_step, b_rows - at);
      if (row == 0 || b_step < b_rows) widen(part(b, at, count, 0, b.cols()), b_block);
      if (!nt) widen(part(a, row, rows, at, count), a_block);
      const onednn::Product p{form,       padded,     nt ? count : sizes.n, nt ? sizes.k : count,
                              DType::f32, DType::f32, !nt && at > 0,        {}};
      onednn::product(context, p, a_block.data(), b_block.data(), nullptr, y_block.data());
      if (nt) store({y_block.as<float>(), rows, count, count}, y, row, at, options);
    }
    if (!nt) store({y_block.as<float>(), rows, sizes.n, sizes.n}, y, row, 0, options);
  }
}

void contraction(MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options) {
  auto& context = y.context();
  const std::int64_t most = padded_rows(std::min(sizes.k, contraction_chunk));
  const Tensor a_block = workspace(context, most, sizes.m), b_block = workspace(context, most, sizes.n);
  const bool direct = y.dtype() == DType::f32;
  const Tensor total = direct ? y : workspace(context, sizes.m, sizes.n);
  bool accumulate = direct && options.accumulate;
  for (std::int64_t first = 0; first < sizes.k; first += contraction_chunk) {
    const std::int64_t rows = std::min(contraction_chunk, sizes.k - first), padded = padded_rows(rows);
    for (const auto& [from, to] : {std::pair{&a, &a_block}, std::pair{&b, &b_block}}) {
      widen(part(*from, first, rows, 0, from->cols()), *to);
      std::memset(to->as<float>() + rows * to->cols(), 0,
                  static_cast<std::size_t>((padded - rows) * to->cols()) * sizeof(float));
    }
    const onednn::Product p{Form::tn, sizes.m, sizes.n, padded, DType::f32, DType::f32, accumulate, {}};
    onednn::product(context, p, a_block.data(), b_block.data(), nullptr, total.data());
    accumulate = true;
  }
  if (!direct) store({total.as<float>(), sizes.m, sizes.n, sizes.n}, y, 0, 0, options);
}

}  // namespace

void matmul_widened(Form form, MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options) {
  if (form == Form::tn) return contraction(sizes, a, b, y, options);
  widened_product(form, sizes, a, b, y, options);
}

}  // namespace chorus::kernel
