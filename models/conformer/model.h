// FastConformer (Rekesh et al. 2023): a Conformer (Gulati et al. 2020) over frames that are subsampled eightfold.
#pragma once
#include <chorus/models/conformer/config.h>
#include <chorus/models/conformer/subsampling.h>
#include <chorus/nn/layers/attention.h>
#include <chorus/nn/layers/feed_forward.h>

namespace chorus {

/// The attention sub-layer with its norm: relative positions or rotary ones.
struct ConformerAttention {
  ConformerAttention() = default;
  explicit ConformerAttention(const ConformerConfig& config);
  LayerNorm norm;
  std::optional<RelativeAttention> relative;
  std::optional<RotaryAttention> rotary;
  Dropout out_dropout;
  Tensor operator()(const Tensor& x, const Tensor& encoding, const Rows& rows, const Pass& pass) const;
  template <class V>
  void fields(V&& v) {
    v("norm", norm);
    if (relative) relative->fields(v);
    if (rotary) rotary->fields(v);
    v("out_dropout", out_dropout);
  }
};

/// norm, pointwise, glu, depthwise, norm, silu, pointwise, dropout.
struct ConformerConvolution {
  ConformerConvolution() = default;
  explicit ConformerConvolution(const ConformerConfig& config);
  LayerNorm norm;
  Linear pointwise1;
  ConvWeights depthwise;  ///< weight [kernel, d_model]
  Port depthwise_in, depthwise_out;
  std::optional<LayerNorm> layer_norm;
  std::optional<BatchNorm> batch_norm;
  Linear pointwise2;
  Dropout dropout;
  Tensor operator()(const Tensor& x, const Rows& rows, const Pass& pass) const;
  template <class V>
  void fields(V&& v) {
    v("norm", norm);
    v("pointwise1", pointwise1);
    v("depthwise", depthwise);
    v("depthwise_in", depthwise_in);
    v("depthwise_out", depthwise_out);
    v("conv_norm", layer_norm);
    v("conv_norm", batch_norm);
    v("pointwise2", pointwise2);
    v("dropout", dropout);
  }
};

/// x + ff/2, x + attention, x + convolution, x + ff/2, norm.
struct ConformerLayer {
  ConformerLayer() = default;
  explicit ConformerLayer(const ConformerConfig& config);
  ConformerFeedForward ff1;
  ConformerAttention attention;
  ConformerConvolution conv;
  ConformerFeedForward ff2;
  LayerNorm norm_out;
  Unit unit;
  Tensor operator()(const Tensor& x, const Tensor& encoding, const Rows& rows, const Pass& pass) const;
  template <class V>
  void fields(V&& v) {
    v("ff1", ff1);
    v("attention", attention);
    v("conv", conv);
    v("ff2", ff2);
    v("norm_out", norm_out);
    v("unit", unit);
  }
};

struct Conformer {
  Conformer() = default;
  explicit Conformer(const ConformerConfig& config);
  ConformerConfig config;
  Subsampling subsampling;
  Dropout pre_dropout;
  Port in, out;  ///< before the first block and after the last norm
  std::vector<ConformerLayer> layers;
  std::optional<LayerNorm> norm_final;
  /// Frames [F, mels] -> [T, d_model] and their rows.
  EncodedRows operator()(const Tensor& frames, const Rows& rows, const Pass& pass) const;
  template <class V>
  void fields(V&& v) {
    v("subsampling", subsampling);
    v("pre_dropout", pre_dropout);
    v("in", in);
    v("out", out);
    v("layers", layers);
    v("norm_final", norm_final);
  }
};

}  // namespace chorus
