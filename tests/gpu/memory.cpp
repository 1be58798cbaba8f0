#include <gpu/compare.h>

#include <numeric>

namespace chorus {
namespace {

using testing::Gpu;

TEST(GpuStatus, WithoutADeviceAStreamSaysWhy) {
  const auto status = kernel::cuda_status();
  if (status.devices > 0) GTEST_SKIP() << "there is a device: " << status.text;
  try {
    CudaStream stream;
    FAIL() << "a stream without a device";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("CUDA"), std::string::npos) << error.what();
  }
}

TEST_F(Gpu, BytesAreCountedByCategory) {
  const std::size_t bytes = 3 * 5 * 4;
  {
    const Tensor t = Tensor::zeros(*context, {15}, DType::f32, Category::optimizer);
    EXPECT_EQ(context->memory.stats().current[static_cast<std::size_t>(Category::optimizer)], bytes);
  }
  EXPECT_EQ(context->memory.stats().total, 0u);
  EXPECT_EQ(context->memory.stats().peak_total, bytes);
  EXPECT_EQ(context->memory.stats().reserved, 0u) << "host memory was taken for a GPU tensor";
}

TEST_F(Gpu, TheLimitHolds) {
  Context small({.limit = 1 << 20}, stream->device());
  EXPECT_NO_THROW((void)Tensor::empty(small, {1 << 18}, DType::f32));
  EXPECT_THROW((void)Tensor::empty(small, {(1 << 18) + 1}, DType::f32), Error);
}

TEST_F(Gpu, CopiesKeepEveryByte) {
  std::vector<std::int64_t> values(1000);
  std::iota(values.begin(), values.end(), -500);
  const Tensor a = Tensor::of(*context, {10, 100}, values), b = a.clone();
  a.fill(7);
  std::vector<std::int64_t> back(1000);
  b.copy_to_host(back.data());
  EXPECT_EQ(back, values);
  a.rows_view(2, 3).copy_from(b.rows_view(4, 5));
  a.copy_to_host(back.data());
  EXPECT_EQ(back[199], 7);
  EXPECT_EQ(back[200], values[400]);
  EXPECT_EQ(back[299], values[499]);
  EXPECT_EQ(back[300], 7);
  EXPECT_NO_THROW((void)Tensor::zeros(*context, {0, 5}, DType::bf16).clone());
}

}  // namespace
}  // namespace chorus
