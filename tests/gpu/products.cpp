#include <chorus/tensor/kernels/matmul.h>
#include <chorus/tensor/ops/linear.h>
#include <chorus/tensor/ops/norm.h>
#include <chorus/tensor/ops/pointwise.h>
#include <gpu/compare.h>

#include <array>
#include <cmath>

namespace chorus {
namespace {

using kernel::Form;
using testing::compare;
using testing::epsilon;
using testing::Gpu;
using testing::Tensors;
using testing::test_tensor;

TEST_F(Gpu, Matmul) {
  const std::array<std::array<std::int64_t, 3>, 8> sizes{
      {{0, 8, 8}, {8, 0, 8}, {8, 8, 0}, {1, 1, 1}, {3, 5, 7}, {64, 128, 32}, {100, 33, 257}, {512, 256, 384}}};
  struct Types {
    DType inputs, result, bias;
  };
  const std::array<Types, 5> types{{{DType::f32, DType::f32, DType::f32},
                                    {DType::f64, DType::f64, DType::f64},
                                    {DType::bf16, DType::bf16, DType::bf16},
                                    {DType::bf16, DType::f32, DType::f32},
                                    {DType::bf16, DType::f32, DType::bf16}}};
  for (const auto& [m, n, k] : sizes)
    for (const Form form : {Form::nt, Form::nn, Form::tn})
      for (const Types& type : types)
        for (const bool accumulate : {false, true})
          for (const bool biased : {false, true}) {
            if (biased && form != Form::nt) continue;
            const Shape a = form == Form::tn ? Shape{k, m} : Shape{m, k}, b = form == Form::nt ? Shape{n, k} : Shape{k, n};
            Tensor want = test_tensor(host, {m, n}, DType::f64, 3), got = test_tensor(*context, {m, n}, type.result, 3);
            const Tensor host_bias = test_tensor(host, {n}, DType::f64, 4), bias = test_tensor(*context, {n}, type.bias, 4);
            kernel::matmul(Cpu{}, form, test_tensor(host, a, DType::f64, 1), test_tensor(host, b, DType::f64, 2), want,
                           {accumulate, biased ? &host_bias : nullptr});
            kernel::matmul(stream->device(), form, test_tensor(*context, a, type.inputs, 1),
                           test_tensor(*context, b, type.inputs, 2), got, {accumulate, biased ? &bias : nullptr});
            std::ostringstream what;
            what << "matmul " << m << 'x' << n << 'x' << k << " form " << static_cast<int>(form) << ' ' << type.inputs
                 << " into " << type.result << " accumulate " << accumulate << " bias " << biased;
            testing::expect_close(what.str(), got.to_doubles(), want.to_doubles(),
                                  4 * epsilon(type.result) * std::sqrt(static_cast<double>(k + 2)));
          }
}

TEST_F(Gpu, MatmulOfViewsWithoutAlignment) {
  const Tensor a = test_tensor(*context, {9, 7}, DType::bf16, 1), b = test_tensor(*context, {5, 7}, DType::bf16, 2);
  const Tensor host_a = test_tensor(host, {9, 7}, DType::f64, 1), host_b = test_tensor(host, {5, 7}, DType::f64, 2);
  Tensor got = Tensor::zeros(*context, {6, 5}, DType::f32), want = Tensor::zeros(host, {6, 5}, DType::f64);
  kernel::matmul(stream->device(), Form::nt, a.rows_view(3, 9), b, got);
  kernel::matmul(Cpu{}, Form::nt, host_a.rows_view(3, 9), host_b, want);
  testing::expect_close("matmul of a view", got.to_doubles(), want.to_doubles(), 16 * epsilon(DType::f32));
}

TEST_F(Gpu, MatmulNamesWhatDoesNotFit) {
  Tensor y = Tensor::empty(*context, {2, 3}, DType::f32);
  const Tensor a = Tensor::empty(*context, {2, 5}, DType::f32), b = Tensor::empty(*context, {3, 4}, DType::f32);
  EXPECT_THROW(kernel::matmul(stream->device(), Form::nt, a, b, y), Error);
}

TEST_F(Gpu, RmsNorm) {
  for (const Shape& s : {Shape{0, 8}, Shape{1, 1}, Shape{3, 17}, Shape{65, 257}, Shape{1000, 2048}})
    compare(*context, host,
            {"rms_norm",
             {s, {s[1]}},
             [](const Tensors& x) { return rms_norm(x[0], x[1], 1e-6); },
             4,
             static_cast<double>(s[0] + 4),
             {DType::f64, DType::f32, DType::bf16},
             1});
}

TEST_F(Gpu, LinearWithBias) {
  for (const std::int64_t rows : {0, 1, 37})
    compare(*context, host,
            {"linear", {{rows, 24}, {40, 24}, {40}}, [](const Tensors& x) { return linear(x[0], x[1], x[2]); }, 24, 40});
}

// A network as a whole: each op hands its gradient to the next on the GPU. Two inputs are used twice, so gradients add up.
TEST_F(Gpu, ANetworkAndItsGradients) {
  compare(*context, host,
          {"network",
           {{37, 24}, {24}, {40, 24}, {40}, {24, 40}},
           [](const Tensors& x) {
             const Tensor hidden = silu(linear(rms_norm(x[0], x[1], 1e-6), x[2], x[3]));
             return mul(add(x[0], linear(relu(hidden), x[4])), x[0]);
           },
           1000,
           1000,
           {DType::f64, DType::f32}});
}

}  // namespace
}  // namespace chorus
