// Holds ops on the GPU, in every type, against the CPU in f64: values and the gradients of all inputs.
#pragma once
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/kernels/cuda/stream.h>
#include <chorus/tensor/kernels/device_memory.h>
#include <gtest/gtest.h>
#include <op_cases/op_case.h>

#include <functional>
#include <memory>

namespace chorus::testing {

/// Skips where no GPU can be used; else owns a stream and a context on the first one.
class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto status = kernel::cuda_status();
    if (status.devices == 0) GTEST_SKIP() << "no CUDA device (" << status.text << ")";
    stream = std::make_unique<CudaStream>();
    context = std::make_unique<Context>(MemoryOptions{}, stream->device());
  }
  std::unique_ptr<CudaStream> stream;
  std::unique_ptr<Context> context;
  Context host;
};

/// A tensor of test values of one stream, exact in every type.
Tensor test_tensor(Context& context, const Shape& shape, DType type, std::uint64_t stream);
/// Unit roundoff, doubled.
double epsilon(DType type);

struct Comparison {
  std::string name;
  std::vector<Shape> shapes;
  std::function<Tensor(const Tensors&)> op;
  double terms = 1;       ///< addends of an element of the value
  double grad_terms = 1;  ///< addends of an element of a gradient
  std::vector<DType> types = {DType::f64, DType::f32, DType::bf16};
  double floor = 0;  ///< lower limit of the scale that errors are relative to, where results cancel to rounding noise
};
/// Also runs everything twice and demands equal bits.
void compare(Context& gpu, Context& cpu, const Comparison& c);

}  // namespace chorus::testing
