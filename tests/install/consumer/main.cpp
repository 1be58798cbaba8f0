// A model of one's own, trained by the installed library: a perceptron learns the product of two numbers.
#include <chorus/nn/layers/linear.h>
#include <chorus/nn/optim/optimizer.h>
#include <chorus/tensor/ops/pointwise.h>

#include <cstdio>

using namespace chorus;

struct Perceptron {
  Linear hidden{2, 16}, out{16, 1};
  Tensor operator()(const Tensor& x) const { return out(silu(hidden(x))); }  // [T, 2] -> [T, 1]
  template <class V>
  void fields(V&& v) {
    v("hidden", hidden);
    v("out", out);
  }
};

int main() {
  Context context;
  Perceptron model;
  ParamStore store = materialize(model, context, {.dtype = DType::f32, .seed = 1, .freeze = {}});
  Optimizer optimizer({.name = "adamw", .weight_decay = 0}, store);

  std::vector<float> inputs, products;
  for (int i = -4; i <= 4; ++i) {
    for (int j = -4; j <= 4; ++j) {
      const float a = static_cast<float>(i) / 4, b = static_cast<float>(j) / 4;
      inputs.insert(inputs.end(), {a, b});
      products.push_back(a * b);
    }
  }
  const auto rows = static_cast<std::int64_t>(products.size());
  const Tensor x = Tensor::of(context, {rows, 2}, inputs), y = Tensor::of(context, {rows, 1}, products);

  double first = 0, loss = 0;
  for (int step = 0; step < 400; ++step) {
    store.start_step();
    const Tensor error = add_scaled(model(x), y, -1);
    const Tensor mean = scale(sum(mul(error, error)), 1.0 / static_cast<double>(rows));
    backward(mean);
    store.finish_step();
    optimizer.step(store, 1e-2);
    loss = mean.item();
    if (step == 0) first = loss;
  }
  std::printf("%lld parameters, loss %.4f -> %.6f\n", static_cast<long long>(store.trainable_count()), first, loss);
  return loss < first / 20 ? 0 : 1;
}
