#include <chorus/nn/layers/linear.h>
#include <chorus/tensor/ops/linear.h>
#include <chorus/tensor/ops/pointwise.h>
#include <chorus/tensor/ops/rows.h>

#include <cmath>

namespace chorus {
namespace {
Init weight_init(const LinearOptions& options, std::int64_t in, std::int64_t out) {
  return options.init.kind == Init::zeros ? Init::xavier(in, out) : options.init;
}

/// Like PyTorch's. Not zero: a row of zeros (a masked frame) through layers without biases stays one, and each norm on its way
/// multiplies its gradient by 1 / sqrt(eps).
Init bias_init(std::int64_t in) { return Init::bounded(1 / std::sqrt(static_cast<double>(in))); }
}  // namespace

Linear::Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options)
    : weight({out_features, in_features}, weight_init(options, in_features, out_features)) {
  if (options.bias) bias = Param({out_features}, bias_init(in_features));
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
    if (options.bias) bias.parts.push_back({name + ".bias", Param({out}, bias_init(in_features))});
  }
}

Tensor StackedLinear::operator()(const Tensor& x) const { return linear(in(x), weight.fused.value, bias.fused.value); }

TablePart rows_held(const Param& table) {
  return table.box.size == table.global ? TablePart{} : TablePart{table.box.begin[0], table.global[0]};
}

Tensor Embedding::operator()(const Tensor& ids) const { return out(embedding(weight.value, ids, rows_held(weight))); }

}  // namespace chorus
