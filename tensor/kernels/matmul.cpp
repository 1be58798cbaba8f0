#include <chorus/tensor/kernels/avx512_loops.h>
#include <chorus/tensor/kernels/matmul_paths.h>
#include <chorus/tensor/kernels/onednn.h>
#include <omp.h>

namespace chorus::kernel {
namespace {

constexpr const char* name(Form form) {
  switch (form) {
    case Form::nt: return "matmul nt";
    case Form::nn: return "matmul nn";
    case Form::tn: return "matmul tn";
  }
  return "matmul";
}

MatmulSizes check(Form form, const Tensor& a, const Tensor& b, const Tensor& y, const MatmulOptions& options) {
  const char* op = name(form);
  require(a && b && y, op, "a is ", a, ", b is ", b, ", y is ", y);
  const bool a_turned = form == Form::tn, b_turned = form == Form::nt;
  const std::int64_t m = a_turned ? a.cols() : a.rows(), k = a_turned ? a.rows() : a.cols();
  const std::int64_t n = b_turned ? b.rows() : b.cols(), inner = b_turned ? b.cols() : b.rows();
  require(k == inner && y.rows() == m && y.cols() == n, op, "sizes don't fit: a ", a, ", b ", b, ", y ", y);
  require(is_floating(a.dtype()) && a.dtype() == b.dtype() && (y.dtype() == a.dtype() || y.dtype() == wide(a.dtype())), op,
          "types don't fit: a ", a, ", b ", b, ", y ", y);
  if (options.bias) {
    const Tensor& bias = *options.bias;
    require(form == Form::nt, op, "only nt takes a bias");
    require(bias && bias.numel() == n && (bias.dtype() == y.dtype() || bias.dtype() == a.dtype()), op, "bias ", bias, " for y ",
            y);
  }
  return {m, n, k};
}

/// A contraction over nothing: zeros, and the bias.
void empty_sum(const Tensor& y, MatmulSizes sizes, const MatmulOptions& options) {
  if (!options.accumulate) y.fill(0);
  if (!options.bias) return;
  dispatch_floating(y.dtype(), "matmul", [&]<class Y>() {
    const std::vector<double> bias = options.bias->to_doubles();
    for (std::int64_t i = 0; i < sizes.m * sizes.n; ++i)
      y.as<Y>()[i] = static_cast<Y>(static_cast<double>(y.as<Y>()[i]) + bias[static_cast<std::size_t>(i % sizes.n)]);
  });
}

}  // namespace

void matmul(Cpu, Form form, const Tensor& a, const Tensor& b, Tensor& y, const MatmulOptions& options) {
  const MatmulSizes sizes = check(form, a, b, y, options);
  if (sizes.m == 0 || sizes.n == 0) return;
  if (sizes.k == 0) return empty_sum(y, sizes, options);
  const Span span(y.context().trace, name(form),
                  2.0 * static_cast<double>(sizes.m) * static_cast<double>(sizes.n) * static_cast<double>(sizes.k),
                  static_cast<double>(a.bytes() + b.bytes() + y.bytes()));
  if (a.dtype() == DType::f64) return matmul_f64(form, sizes, a, b, y, options);
  if (a.dtype() == DType::bf16 && !onednn::native_bf16()) {
    // Whatever the number of rows: a row's bits must not depend on how many others there are.
    return avx512_loops() ? matmul_tiled(form, sizes, a, b, y, options) : matmul_widened(form, sizes, a, b, y, options);
  }
  matmul_native(form, sizes, a, b, y, options);
}

std::string matmul_description() {
  const int threads = omp_get_max_threads();
  return onednn::description() + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads") +
         (onednn::bits_depend_on_threads() ? "; the last bits depend on the number of threads" : "") +
         (onednn::native_bf16() ? ""
          : avx512_loops()      ? "; own bf16 products, computed in f32, which is faster here"
                                : "; bf16 products are computed in f32, which is faster here");
}

std::int64_t matmul_primitives_created(const Context& context) { return onednn::primitives_created(context); }

}  // namespace chorus::kernel
