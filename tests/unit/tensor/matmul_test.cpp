// Every product against a naive f64 sum: forms, types, odd sizes, accumulation, bias, views between foreign rows.
#include <chorus/core/rng.h>
#include <chorus/tensor/kernels/avx512_loops.h>
#include <chorus/tensor/kernels/matmul_paths.h>
#include <chorus/tensor/kernels/onednn.h>
#include <chorus/tensor/kernels/peak.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <tuple>

namespace chorus {
namespace {

using kernel::Form;
using kernel::matmul;

constexpr const char* form_name(Form f) { return f == Form::nt ? "nt" : f == Form::nn ? "nn" : "tn"; }

Tensor random(Context& context, const Shape& shape, DType dtype, const char* stream) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  fill_uniform(random_key(7, stream), 0, values, -1, 1);
  Tensor t = Tensor::empty(context, shape, dtype);
  dispatch_floating(dtype, "random", [&]<class T>() {
    for (std::size_t i = 0; i < values.size(); ++i) t.as<T>()[i] = static_cast<T>(values[i]);
  });
  return t;
}

using Path = decltype(kernel::matmul_native);

struct Case {
  Form form;
  DType in, out;
  std::int64_t m, n, k;
  bool accumulate = false, bias = false;
  Path* path = nullptr;  ///< none: whatever `matmul` chooses
  void run(const Tensor& a, const Tensor& b, Tensor& y, const kernel::MatmulOptions& options = {}) const {
    if (path)
      path(form, {m, n, k}, a, b, y, options);
    else
      matmul(Cpu{}, form, a, b, y, options);
  }
  friend std::ostream& operator<<(std::ostream& s, const Case& c) {
    return s << form_name(c.form) << ' ' << c.in << "->" << c.out << " m " << c.m << " n " << c.n << " k " << c.k
             << (c.accumulate ? " accumulate" : "") << (c.bias ? " bias" : "");
  }
};

/// y, and behind it the naive sums.
std::vector<double> naive(const Case& c, const Tensor& a, const Tensor& b, const Tensor& before, const Tensor& bias) {
  const auto av = a.to_doubles(), bv = b.to_doubles(), start = before.to_doubles(), shift = bias ? bias.to_doubles() : start;
  std::vector<double> y(static_cast<std::size_t>(c.m * c.n));
  const auto at = [](std::int64_t r, std::int64_t col, std::int64_t cols) { return static_cast<std::size_t>(r * cols + col); };
  // Where the next factor lies; by pointers, as this is most of what an unoptimised test does.
  const std::int64_t a_step = c.form == Form::tn ? c.m : 1, b_step = c.form == Form::nt ? 1 : c.n;
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t j = 0; j < c.n; ++j) {
      double sum = (c.accumulate ? start[at(i, j, c.n)] : 0) + (c.bias ? shift[static_cast<std::size_t>(j)] : 0);
      const double* left = av.data() + (c.form == Form::tn ? i : i * c.k);
      const double* right = bv.data() + (c.form == Form::nt ? j * c.k : j);
      for (std::int64_t p = 0; p < c.k; ++p, left += a_step, right += b_step) sum += *left * *right;
      y[at(i, j, c.n)] = sum;
    }
  return y;
}

Shape a_shape(const Case& c) { return c.form == Form::tn ? Shape{c.k, c.m} : Shape{c.m, c.k}; }
Shape b_shape(const Case& c) { return c.form == Form::nt ? Shape{c.n, c.k} : Shape{c.k, c.n}; }

/// Terms deviate by 1/3, their sum by sqrt(k)/3, and each of its k additions rounds: a random walk again. A bf16 result
/// is rounded once more.
double tolerance(const Case& c, double want) {
  const double unit = c.in == DType::f64 ? 0x1p-53 : 0x1p-24, k = static_cast<double>(c.k);
  return 4 * unit * std::sqrt(k + 1) * (std::sqrt(k) / 3 + 2) + (c.out == DType::bf16 ? 0x1p-8 * std::abs(want) : 0);
}

void expect_near(const Case& c, const std::vector<double>& got, const std::vector<double>& want) {
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double ratio = std::isfinite(got[i]) ? std::abs(got[i] - want[i]) / tolerance(c, want[i]) : 1e300;
    if (ratio > worst) worst = ratio, at = i;
  }
  EXPECT_LE(worst, 1) << c << ": worst at " << at << ", got " << got[at] << ", want " << want[at] << ", " << worst
                      << " of the tolerance";
}

/// `views`: a and y lie in the middle of larger tensors; a's neighbours are NaN, y's must stay what they are.
void check(Context& context, const Case& c, bool views) {
  constexpr std::int64_t guard = 3;
  const auto inside = [&](const Tensor& t, double fence) {
    Tensor whole = Tensor::full(context, {t.rows() + 2 * guard, t.cols()}, t.dtype(), fence);
    whole.rows_view(guard, guard + t.rows()).copy_from(t);
    return whole;
  };
  Tensor a = random(context, a_shape(c), c.in, "a"), b = random(context, b_shape(c), c.in, "b");
  Tensor y = random(context, {c.m, c.n}, c.out, "y");
  const Tensor before = y.clone(), bias = c.bias ? random(context, {c.n}, c.out, "bias") : Tensor();
  const auto want = naive(c, a, b, before, bias);
  Tensor a_whole, b_whole, y_whole;
  if (views) {
    a_whole = inside(a, NAN), b_whole = inside(b, NAN), y_whole = inside(y, 77);
    a = a_whole.rows_view(guard, guard + a.rows());
    b = b_whole.rows_view(guard, guard + b.rows());
    y = y_whole.rows_view(guard, guard + c.m);
  }
  c.run(a, b, y, {c.accumulate, c.bias ? &bias : nullptr});
  expect_near(c, y.to_doubles(), want);
  if (!views) return;
  const auto all = y_whole.to_doubles();
  for (std::int64_t i = 0; i < guard * c.n; ++i) {
    const auto back = all.size() - 1 - static_cast<std::size_t>(i);
    ASSERT_EQ(all[static_cast<std::size_t>(i)], 77) << c << ": wrote before the view, element " << i;
    ASSERT_EQ(all[back], 77) << c << ": wrote behind the view, element " << i;
  }
}

struct Way {
  const char* name;
  DType in, out;
  Path* path = nullptr;
  bool here = true;  ///< whether this machine can go it
  friend std::ostream& operator<<(std::ostream& s, const Way& way) { return s << way.name; }
};

class EveryWay : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!GetParam().here) GTEST_SKIP() << "not on this processor: " << kernel::matmul_description();
  }
  Context context;
  const DType in = GetParam().in, out = GetParam().out;
  Path* const path = GetParam().path;
};
constexpr DType f32 = DType::f32, bf16_type = DType::bf16, f64 = DType::f64;
INSTANTIATE_TEST_SUITE_P(
    Ways, EveryWay,
    ::testing::Values(Way{"f32", f32, f32}, Way{"bf16", bf16_type, bf16_type}, Way{"bf16_f32", bf16_type, f32},
                      Way{"f64", f64, f64}, Way{"f32_native", f32, f32, kernel::matmul_native},
                      Way{"bf16_native", bf16_type, bf16_type, kernel::matmul_native, kernel::onednn::has_bf16()},
                      Way{"bf16_widened", bf16_type, bf16_type, kernel::matmul_widened},
                      Way{"bf16_f32_widened", bf16_type, f32, kernel::matmul_widened},
                      Way{"f32_tiled", f32, f32, kernel::matmul_tiled, kernel::avx512_loops()},
                      Way{"bf16_tiled", bf16_type, bf16_type, kernel::matmul_tiled, kernel::avx512_loops()},
                      Way{"bf16_f32_tiled", bf16_type, f32, kernel::matmul_tiled, kernel::avx512_loops()}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(EveryWay, ProductsOfOddSizesInAllForms) {
  for (const Form form : {Form::nt, Form::nn, Form::tn})
    for (const std::int64_t rows : {1, 3, 17, 33, 250, 511, 513})
      for (const auto& [n, k] : {std::pair{1, 7}, {17, 33}, {48, 16}})
        for (const bool accumulate : {false, true})
          for (const bool views : {false, true}) {
            const Case c = form == Form::tn ? Case{form, in, out, n, k, rows, accumulate, false, path}
                                            : Case{form, in, out, rows, n, k, accumulate, false, path};
            check(context, c, views);
            if (form != Form::nt) continue;
            Case with_bias = c;
            with_bias.bias = true;
            check(context, with_bias, views);
          }
}

TEST_P(EveryWay, LongContractionsAreSummedInChunks) {
  for (const std::int64_t k : {1024, 1025, 2500, 4100})
    for (const bool accumulate : {false, true}) check(context, {Form::tn, in, out, 9, 20, k, accumulate, false, path}, true);
  for (const std::int64_t k : {1025, 4100}) check(context, {Form::nt, in, out, 9, 20, k, true, true, path}, true);
}

TEST(Matmul, EmptyOperands) {
  Context context;
  for (const auto& [in, out] : {std::pair{f32, f32}, {bf16_type, bf16_type}, {bf16_type, f32}, {f64, f64}})
    for (const Form form : {Form::nt, Form::nn, Form::tn})
      for (const bool accumulate : {false, true}) {
        check(context, {form, in, out, 0, 5, 4, accumulate}, false);
        check(context, {form, in, out, 5, 0, 4, accumulate}, false);
        check(context, {form, in, out, 5, 4, 0, accumulate}, true);
        check(context, {form, in, out, 5, 4, 0, accumulate, form == Form::nt}, true);
      }
}

TEST(Matmul, WidensLargeOperandsInBlocks) {
  // More rows of b than one converted block holds.
  Context context;
  for (const DType out : {DType::bf16, DType::f32}) {
    check(context, {Form::nt, DType::bf16, out, 2, 4200, 1030, true, true, kernel::matmul_widened}, true);
    check(context, {Form::nn, DType::bf16, out, 2, 1030, 4200, true, false, kernel::matmul_widened}, true);
  }
}

TEST(Matmul, MoreColumnsThanPanelsArePackedAtOnce) {
  if (!kernel::avx512_loops()) GTEST_SKIP() << kernel::matmul_description();
  Context context;
  for (const auto& [form, m, k] : {std::tuple{Form::nt, 13, 1000}, {Form::nn, 25, 1000}, {Form::tn, 13, 1000}})
    check(context, {form, DType::f32, DType::f32, m, 1100, k, true, form == Form::nt, kernel::matmul_tiled}, true);
}

TEST(Matmul, ARowsBitsDontDependOnItsNeighbours) {
  if (kernel::matmul_description().find("depend on the number of threads") != std::string::npos)
    GTEST_SKIP() << kernel::matmul_description();
  Context context;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Form form : {Form::nt, Form::nn}) {
      const Case all{form, dtype, dtype, 250, 70, 90};
      const Tensor a = random(context, a_shape(all), dtype, "a"), b = random(context, b_shape(all), dtype, "b");
      Tensor y = Tensor::empty(context, {all.m, all.n}, dtype);
      matmul(Cpu{}, form, a, b, y);
      for (const std::int64_t rows : {1, 5, 31, 32, 33, 41, 101}) {
        Tensor part = Tensor::empty(context, {rows, all.n}, dtype);
        matmul(Cpu{}, form, a.rows_view(7, 7 + rows), b, part);
        EXPECT_EQ(part.to_doubles(), y.rows_view(7, 7 + rows).to_doubles()) << all << ", " << rows << " rows";
      }
    }
}

TEST(Matmul, EveryLengthNeedsFewPrimitives) {
  Context context;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Path& path = dtype == DType::f32 ? kernel::matmul_native : kernel::matmul_widened;
    const auto pass = [&](bool view) {
      for (std::int64_t rows = 1; rows <= 700; ++rows) {
        const Tensor x = Tensor::zeros(context, {rows + view, 8}, dtype).rows_view(view, rows + view),
                     w = Tensor::zeros(context, {4, 8}, dtype);
        Tensor y = Tensor::empty(context, {rows, 4}, dtype), dx = Tensor::empty(context, {rows, 8}, dtype);
        Tensor dw = Tensor::empty(context, {4, 8}, DType::f32);
        path(Form::nt, {rows, 4, 8}, x, w, y, {});
        path(Form::nn, {rows, 8, 4}, y, w, dx, {});
        path(Form::tn, {4, 8, rows}, y, x, dw, {});
      }
    };
    const auto before = kernel::matmul_primitives_created(context);
    pass(false);
    pass(true);
    const auto after = kernel::matmul_primitives_created(context);
    EXPECT_LE(after - before, 3 * 19 + 2)
        << "three forms of 19 numbers of rows up to 704; two that add the end of a contraction";
    EXPECT_GT(after, before);
    pass(false);
    pass(true);
    EXPECT_EQ(kernel::matmul_primitives_created(context), after);
  }
}

TEST(Matmul, BitsDontDependOnThreads) {
  if (kernel::matmul_description().find("depend on the number of threads") != std::string::npos)
    GTEST_SKIP() << kernel::matmul_description();
  Context context;
  const int threads = omp_get_max_threads();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const Case c : {Case{Form::nt, dtype, dtype, 250, 192, 1024}, Case{Form::nn, dtype, dtype, 250, 48, 200},
                         Case{Form::tn, dtype, dtype, 48, 48, 4000}, Case{Form::tn, dtype, dtype, 64, 64, 2049}}) {
      const Tensor a = random(context, a_shape(c), dtype, "a"), b = random(context, b_shape(c), dtype, "b");
      std::vector<double> first;
      for (const int n : {1, 2, 3}) {
        omp_set_num_threads(n);
        Tensor y = Tensor::empty(context, {c.m, c.n}, dtype);
        matmul(Cpu{}, c.form, a, b, y);
        if (first.empty()) first = y.to_doubles();
        EXPECT_EQ(y.to_doubles(), first) << c << " with " << n << " threads";
      }
      omp_set_num_threads(threads);
    }
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  Context context;
  const Tensor a = Tensor::zeros(context, {2, 3}, DType::f32), b = Tensor::zeros(context, {4, 5}, DType::f32);
  Tensor y = Tensor::zeros(context, {2, 4}, DType::f32), f64 = Tensor::zeros(context, {2, 4}, DType::f64);
  EXPECT_THROW(matmul(Cpu{}, Form::nt, a, b, y), Error);
  const Tensor c = Tensor::zeros(context, {4, 3}, DType::f32);
  EXPECT_THROW(matmul(Cpu{}, Form::nt, a, c, f64), Error);
  const Tensor bias = Tensor::zeros(context, {3}, DType::f32);
  EXPECT_THROW(matmul(Cpu{}, Form::nt, a, c, y, {false, &bias}), Error);
  EXPECT_NO_THROW(matmul(Cpu{}, Form::nt, a, c, y));
}

TEST(Matmul, IsTracedWithItsFlops) {
  Context context;
  context.trace.sum(true);
  Tensor y = Tensor::zeros(context, {2, 4}, DType::f32);
  matmul(Cpu{}, Form::nt, Tensor::zeros(context, {2, 3}, DType::f32), Tensor::zeros(context, {4, 3}, DType::f32), y);
  EXPECT_EQ(context.trace.totals().at("matmul nt").flops, 2.0 * 2 * 4 * 3);
  EXPECT_NE(kernel::matmul_description().find("oneDNN"), std::string::npos);
}

TEST(Matmul, ThePeakIsAPlausibleSpeed) {
  Context context;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double peak = kernel::measure_matrix_peak(context, dtype);
    EXPECT_GT(peak, 1e9) << dtype;
    EXPECT_LT(peak, 1e15) << dtype;
  }
  EXPECT_THROW(kernel::measure_matrix_peak(context, DType::f64), Error);
}

}  // namespace
}  // namespace chorus
