#include <chorus/nn/layers/linear.h>
#include <chorus/tensor/ops/linear.h>
#include <chorus/tensor/ops/pointwise.h>
#include <chorus/tensor/ops/rows.h>

namespace chorus {
namespace {
Init weight_init(const LinearOptions& options, std::int64_t in, std::int64_t out) {
  return options.init.kind == Init::zeros ? Init::xavier(in, out) : options.init;
}
}  // namespace

Linear::Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options)
    : weight({out_features, in_features}, weight_init(options, in_features, out_features)) {
  if (options.bias) bias = Param({out_features}, Init::zero());
}

Tensor Linear::operator()(const Tensor& x) const {
  if (!out.hook) return linear(in(x), weight.value, bias.value);
  const Tensor y = out(linear(in(x), weight.value));
  return bias ? add_row(y, bias.value) : y;
}

StackedLinear::StackedLinear(std::int64_t in_features, const std::vector<std::pair<std::string, std::int64_t>>& parts,
                             const LinearOptions& options) {
  for (const auto& [name, out] : parts) {
    weight.parts.push_back({name + ".weight", Param({out, in_features}, weight_init(options, in_features, out))});
    if (options.bias) bias.parts.push_back({name + ".bias", Param({out}, Init::zero())});
  }
}

Tensor StackedLinear::operator()(const Tensor& x) const { return linear(in(x), weight.fused.value, bias.fused.value); }

Tensor Embedding::operator()(const Tensor& ids) const { return out(embedding(weight.value, ids)); }

}  // namespace chorus
