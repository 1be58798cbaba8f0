#include <chorus/tensor/kernels/pointwise.h>
#include <chorus/tensor/ops/pointwise.h>
#include <gpu/compare.h>

#include <cmath>

namespace chorus {
namespace {

using testing::compare;
using testing::Gpu;
using testing::Tensors;

const std::vector<Shape> sizes{{0}, {1}, {7}, {3, 17}, {1030, 1027}};

TEST_F(Gpu, UnaryOps) {
  for (const Shape& s : sizes) {
    compare(*context, host, {"scale", {s}, [](const Tensors& x) { return scale(x[0], 0.375); }});
    compare(*context, host, {"relu", {s}, [](const Tensors& x) { return relu(x[0]); }});
    compare(*context, host, {"silu", {s}, [](const Tensors& x) { return silu(x[0]); }});
  }
}

TEST_F(Gpu, BinaryOps) {
  for (const Shape& s : sizes) {
    compare(*context, host, {"add", {s, s}, [](const Tensors& x) { return add(x[0], x[1]); }});
    compare(*context, host, {"add_scaled", {s, s}, [](const Tensors& x) { return add_scaled(x[0], x[1], -0.5); }});
    compare(*context, host, {"mul", {s, s}, [](const Tensors& x) { return mul(x[0], x[1]); }});
  }
}

TEST_F(Gpu, AccumulateConvertsAndAdds) {
  for (const DType from : {DType::f32, DType::bf16, DType::f64})
    for (const DType to : {DType::f32, DType::bf16, DType::f64})
      for (const bool add : {false, true}) {
        Tensor want = testing::test_tensor(host, {5, 33}, DType::f64, 1), got = testing::test_tensor(*context, {5, 33}, to, 1);
        kernel::accumulate(Cpu{}, testing::test_tensor(host, {5, 33}, DType::f64, 2), add, want);
        kernel::accumulate(stream->device(), testing::test_tensor(*context, {5, 33}, from, 2), add, got);
        testing::expect_close("accumulate", got.to_doubles(), want.to_doubles(), testing::epsilon(to));
      }
}

// Rows of odd length start at addresses that no 16-byte access reaches.
TEST_F(Gpu, ViewsNeedNoAlignment) {
  for (const DType type : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor x = testing::test_tensor(*context, {4, 33}, type, 3).rows_view(1, 3);
    Tensor y = Tensor::zeros(*context, {4, 33}, type);
    Tensor part = y.rows_view(1, 3);
    kernel::unary(stream->device(), kernel::Unary::scale, x, 2, part);
    const auto whole = y.to_doubles(), values = x.to_doubles();
    for (std::size_t i = 0; i < whole.size(); ++i)
      ASSERT_EQ(whole[i], i < 33 || i >= 99 ? 0 : 2 * values[i - 33]) << name(type) << ", element " << i;
  }
}

TEST_F(Gpu, ColumnSum) {
  for (const Shape& s : {Shape{0, 17}, Shape{1, 1}, Shape{31, 5}, Shape{33, 300}, Shape{10000, 65}})
    for (const DType type : {DType::f32, DType::bf16, DType::f64})
      for (const bool add : {false, true}) {
        Tensor want = testing::test_tensor(host, {s[1]}, DType::f64, 1),
               got = testing::test_tensor(*context, {s[1]}, wide(type), 1);
        kernel::column_sum(Cpu{}, testing::test_tensor(host, s, DType::f64, 2), add, want);
        kernel::column_sum(stream->device(), testing::test_tensor(*context, s, type, 2), add, got);
        testing::expect_close("column_sum", got.to_doubles(), want.to_doubles(),
                              4 * testing::epsilon(wide(type)) * std::sqrt(static_cast<double>(s[0] + 1)), 1);
      }
}

}  // namespace
}  // namespace chorus
