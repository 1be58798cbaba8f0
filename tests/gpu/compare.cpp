#include <gpu/compare.h>

#include <cmath>

namespace chorus::testing {
namespace {

/// The value, then the gradient of each input under a fixed cotangent.
Values run(Context& context, DType type, const Comparison& c) {
  Tensors inputs;
  Values results(1);
  for (const Shape& shape : c.shapes) {
    inputs.push_back(test_tensor(context, shape, type, inputs.size()));
    make_leaf(inputs.back(), Tensor::zeros(context, shape, wide(type), Category::gradients));
  }
  const Tensor y = c.op(inputs);
  results[0] = y.to_doubles();
  backward(y, {.cotangent = test_tensor(context, y.shape(), y.dtype(), 100)});
  for (const Tensor& x : inputs) results.push_back(x.node()->sink.grad.to_doubles());
  return results;
}

}  // namespace

double epsilon(DType type) { return type == DType::f64 ? 0x1p-52 : type == DType::f32 ? 0x1p-23 : 0x1p-8; }

Tensor test_tensor(Context& context, const Shape& shape, DType type, std::uint64_t stream) {
  Tensor t;
  dispatch_floating(type, "test_tensor", [&]<class T>() {
    std::vector<T> values;
    for (std::int64_t i = 0; i < shape.numel(); ++i)
      values.push_back(static_cast<T>(test_value(stream, static_cast<std::uint64_t>(i), 1)));
    t = Tensor::of(context, shape, values);
  });
  return t;
}

void compare(Context& gpu, Context& cpu, const Comparison& c) {
  const Values want = run(cpu, DType::f64, c);
  for (const DType type : c.types) {
    const Values got = run(gpu, type, c);
    for (std::size_t i = 0; i < want.size(); ++i)
      expect_close(c.name + ' ' + std::string(name(type)) + (i ? ", gradient " + std::to_string(i - 1) : ", value"), got[i],
                   want[i], 4 * epsilon(type) * std::sqrt(std::max(1.0, i ? c.grad_terms : c.terms)), c.floor);
    EXPECT_EQ(run(gpu, type, c), got) << c.name << ' ' << name(type) << ": a second run differs";
  }
}

}  // namespace chorus::testing
