#include <chorus/nn/layers/feed_forward.h>
#include <chorus/tensor/ops/pointwise.h>

namespace chorus {

SwiGluMlp::SwiGluMlp(std::int64_t hidden, std::int64_t inner)
    : gate_up(hidden, {{"gate", inner}, {"up", inner}}, {.bias = false, .init = {}}),
      down(inner, hidden, {.bias = false, .init = {}}) {}

Tensor SwiGluMlp::operator()(const Tensor& x) const { return down(swiglu(gate_up(x))); }

ConformerFeedForward::ConformerFeedForward(std::int64_t features, std::int64_t inner, bool bias, double dropout)
    : norm(features),
      up(features, inner, {.bias = bias, .init = {}}),
      down(inner, features, {.bias = bias, .init = {}}),
      inner_dropout{.p = dropout},
      out_dropout{.p = dropout} {}

Tensor ConformerFeedForward::operator()(const Tensor& x, const Rows& rows, const Pass& pass) const {
  return out_dropout(down(inner_dropout.after_silu(up(norm(x)), rows, pass)), rows, pass);
}

}  // namespace chorus
