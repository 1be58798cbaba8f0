// Products of any size from few primitives. oneDNN prepares one per size (0.25 ms and some 100 KB), and a packed batch
// has a new number of rows each time. So rows are rounded up to `padded_rows`, 16 numbers per octave.
//
// dnnl_sgemm needs no preparation at all, but its results depend on the number of threads and, per row, on the number of
// rows. Nor is it faster: Emerald Rapids at 250 rows, GFLOP/s of sgemm / primitive, one thread: nt 576x576 155 / 155,
// nn 164 / 155, tn 161 / 152; two: nt 306 / 310, nt 192x1024 232 / 311, nn 328 / 316, tn 322 / 310, tn 1024x192 265 / 302.
#include <chorus/tensor/kernels/convert.h>
#include <chorus/tensor/kernels/matmul_paths.h>
#include <chorus/tensor/kernels/onednn.h>

#include <cstring>
#include <utility>

namespace chorus::kernel {

std::int64_t whole_rows(std::int64_t rows) {
  const std::int64_t up = padded_rows(rows);
  if (up == rows) return rows;
  // Sizes are 1/16 of the next power of two apart, 32 at least: one step below `up` is whole again.
  std::int64_t step = 32;
  while (rows > 16 * step) step *= 2;
  return up - step;
}

namespace {

const char* row(const Tensor& t, std::int64_t r) {
  return static_cast<const char*>(t.data()) + static_cast<std::size_t>(r * t.cols()) * size_of(t.dtype());
}
char* row(Tensor& t, std::int64_t r) { return const_cast<char*>(row(std::as_const(t), r)); }

std::size_t row_bytes(const Tensor& t, std::int64_t rows) {
  return static_cast<std::size_t>(rows * t.cols()) * size_of(t.dtype());
}

Tensor workspace(const Tensor& like, std::int64_t rows) {
  return Tensor::empty(like.context(), {rows, like.cols()}, like.dtype(), Category::workspace);
}

onednn::Product describe(Form form, MatmulSizes sizes, const Tensor& a, const Tensor& y, bool accumulate, const Tensor* bias) {
  onednn::Product p{form, sizes.m, sizes.n, sizes.k, a.dtype(), y.dtype(), accumulate, std::nullopt};
  if (bias) p.bias = bias->dtype();
  return p;
}

void native_product(Form form, MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options) {
  auto& context = y.context();
  const void* bias = options.bias ? options.bias->data() : nullptr;
  const auto run = [&](std::int64_t rows, const void* a_rows, void* y_rows) {
    onednn::product(context, describe(form, {rows, sizes.n, sizes.k}, a, y, options.accumulate, options.bias), a_rows, b.data(),
                    bias, y_rows);
  };
  const std::int64_t padded = padded_rows(sizes.m);
  // Rows after the end may be read when there is storage, but written only when no other handle can see that storage.
  if (padded == sizes.m || (a.capacity() >= row_bytes(a, padded) && y.capacity() >= row_bytes(y, padded) && y.unshared()))
    return run(padded, a.data(), y.data());
  const std::int64_t whole = whole_rows(sizes.m), tail = sizes.m - whole;
  if (whole) run(whole, a.data(), y.data());
  Tensor a_tail = workspace(a, tail), y_tail = workspace(y, tail);  // their storage is padded
  std::memcpy(a_tail.data(), row(a, whole), row_bytes(a, tail));
  if (options.accumulate) std::memcpy(y_tail.data(), row(y, whole), row_bytes(y, tail));
  run(padded_rows(tail), a_tail.data(), y_tail.data());
  std::memcpy(row(y, whole), y_tail.data(), row_bytes(y, tail));
}

/// Contracts over rows, whose number varies: whole chunks in place, the rest from copies padded with zeros.
void contraction(MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, bool accumulate) {
  auto& context = y.context();
  const auto run = [&](std::int64_t rows, const void* a_rows, const void* b_rows) {
    onednn::product(context, describe(Form::tn, {sizes.m, sizes.n, rows}, a, y, accumulate, nullptr), a_rows, b_rows, nullptr,
                    y.data());
    accumulate = true;
  };
  for (std::int64_t first = 0; first < sizes.k; first += contraction_chunk) {
    const std::int64_t rows = std::min(contraction_chunk, sizes.k - first), whole = whole_rows(rows), tail = rows - whole;
    if (whole) run(whole, row(a, first), row(b, first));
    if (!tail) continue;
    const std::int64_t padded = padded_rows(tail);
    Tensor ends[2] = {workspace(a, padded), workspace(b, padded)};
    const Tensor* operands[2] = {&a, &b};
    for (int i = 0; i < 2; ++i) {
      std::memcpy(ends[i].data(), row(*operands[i], first + whole), row_bytes(ends[i], tail));
      std::memset(row(ends[i], tail), 0, row_bytes(ends[i], padded - tail));
    }
    run(padded, ends[0].data(), ends[1].data());
  }
}

}  // namespace

void matmul_native(Form form, MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options) {
  const bool one_part = sizes.k <= contraction_chunk && whole_rows(sizes.k) % sizes.k == 0;
  if (form == Form::tn && (y.dtype() != DType::bf16 || one_part)) return contraction(sizes, a, b, y, options.accumulate);
  if (form == Form::tn) {  // sums of several parts are rounded once
    Tensor total = Tensor::empty(y.context(), {sizes.m, sizes.n}, DType::f32, Category::workspace);
    contraction(sizes, a, b, total, false);
    return convert<float, bf16>({total.as<float>(), sizes.m, sizes.n, sizes.n}, {y.as<bf16>(), sizes.m, sizes.n, sizes.n},
                                options.accumulate);
  }
  native_product(form, sizes, a, b, y, options);
}

}  // namespace chorus::kernel
