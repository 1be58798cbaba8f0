#pragma once
#include <chorus/nn/layers/linear.h>
#include <chorus/nn/layers/norm.h>

namespace chorus {

/// Gated feed-forward of Llama decoders: down(silu(gate(x)) * up(x)), no biases.
struct SwiGluMlp {
  SwiGluMlp() = default;
  SwiGluMlp(std::int64_t hidden, std::int64_t inner);
  StackedLinear gate_up;
  Linear down;
  Tensor operator()(const Tensor& x) const;
  template <class V>
  void fields(V&& v) {
    gate_up.fields(v);
    v("down", down);
  }
};

/// Feed-forward of a conformer: norm, up, silu, dropout, down, dropout.
struct ConformerFeedForward {
  ConformerFeedForward() = default;
  ConformerFeedForward(std::int64_t features, std::int64_t inner, bool bias, double dropout);
  LayerNorm norm;
  Linear up, down;
  Dropout inner_dropout, out_dropout;
  Tensor operator()(const Tensor& x, const Rows& rows, const Pass& pass) const;
  template <class V>
  void fields(V&& v) {
    v("norm", norm);
    v("up", up);
    v("down", down);
    v("inner_dropout", inner_dropout);
    v("out_dropout", out_dropout);
  }
};

}  // namespace chorus
