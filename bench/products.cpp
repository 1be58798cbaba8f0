// Matrix products of training by form and size: own loops and oneDNN in turns, medians.
//   bench_products [rows]     2,048 rows unless given
#include <chorus/core/rng.h>
#include <chorus/tensor/kernels/avx512_loops.h>
#include <chorus/tensor/kernels/matmul_paths.h>
#include <chorus/tensor/kernels/onednn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace chorus {
namespace {

using Clock = std::chrono::steady_clock;
using Path = decltype(kernel::matmul_tiled);

Tensor random(Context& context, const Shape& shape, DType dtype) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  fill_uniform(random_key(1, "products"), 0, std::span<float>(values), -1, 1);
  const Tensor t = Tensor::empty(context, shape, dtype);
  dispatch<float, bf16>(dtype, "products", [&]<class T>() {
    std::transform(values.begin(), values.end(), t.as<T>(), [](float x) { return static_cast<T>(x); });
  });
  return t;
}

double seconds(Path& path, kernel::Form form, kernel::MatmulSizes sizes, const Tensor& a, const Tensor& b, Tensor& y) {
  const auto begin = Clock::now();
  path(form, sizes, a, b, y, {});
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void compare(Context& context, const char* what, kernel::Form form, DType dtype, std::int64_t rows, std::int64_t in,
             std::int64_t out) {
  using kernel::Form;
  // x [rows, in], w [out, in], dy [rows, out]: y = x w^T, dx = dy w, dw = dy^T x.
  const Tensor x = random(context, {rows, in}, dtype), w = random(context, {out, in}, dtype),
               dy = random(context, {rows, out}, dtype);
  const kernel::MatmulSizes sizes = form == Form::nt   ? kernel::MatmulSizes{rows, out, in}
                                    : form == Form::nn ? kernel::MatmulSizes{rows, in, out}
                                                       : kernel::MatmulSizes{out, in, rows};
  const Tensor &a = form == Form::nt ? x : dy, &b = form == Form::tn ? x : w;
  Tensor y = Tensor::empty(context, {sizes.m, sizes.n}, form == Form::tn ? DType::f32 : dtype);
  Path& theirs = dtype == DType::bf16 && !kernel::onednn::native_bf16() ? kernel::matmul_widened : kernel::matmul_native;
  const double flops = 2.0 * static_cast<double>(sizes.m) * static_cast<double>(sizes.n) * static_cast<double>(sizes.k);
  const int repeats = static_cast<int>(std::clamp(2e11 / flops, 5.0, 400.0));
  std::vector<double> own, onednn;
  for (int i = -2; i < repeats; ++i) {  // two to warm up
    const double o = seconds(kernel::matmul_tiled, form, sizes, a, b, y), t = seconds(theirs, form, sizes, a, b, y);
    if (i >= 0) own.push_back(o), onednn.push_back(t);
  }
  const auto median = [](std::vector<double>& v) {
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
  };
  const double o = median(own), t = median(onednn);
  std::printf("%-10s %s %-4s %6lld %6lld %6lld   own %7.1f GFLOP/s   oneDNN %7.1f GFLOP/s   ratio %.3f\n", what,
              form == Form::nt   ? "nt"
              : form == Form::nn ? "nn"
                                 : "tn",
              std::string(name(dtype)).c_str(), static_cast<long long>(rows), static_cast<long long>(in),
              static_cast<long long>(out), flops / o / 1e9, flops / t / 1e9, t / o);
}

int run(std::int64_t rows) {
  if (!kernel::avx512_loops()) return std::puts("this machine has no AVX-512: nothing to compare"), 1;
  Context context;
  std::printf("# %s\n# what, form, type, rows, in, out\n", kernel::matmul_description().c_str());
  struct Layer {
    const char* what;
    std::int64_t in, out;
  };
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Layer& layer : {Layer{"qkv", 576, 960}, Layer{"gate_up", 576, 3072}, Layer{"down", 1536, 576},
                               Layer{"output", 576, 576}, Layer{"small", 192, 192}, Layer{"odd", 145, 445}})
      for (const auto form : {kernel::Form::nt, kernel::Form::nn, kernel::Form::tn})
        compare(context, layer.what, form, dtype, rows, layer.in, layer.out);
  return 0;
}

}  // namespace
}  // namespace chorus

int main(int argc, char** argv) {
  const std::int64_t rows = argc > 1 ? std::atoll(argv[1]) : 2048;
  if (rows <= 0) return std::fprintf(stderr, "bench_products [rows], a positive number; got '%s'\n", argv[1]), 2;
  return chorus::run(rows);
}
