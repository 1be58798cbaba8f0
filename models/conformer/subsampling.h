#pragma once
#include <chorus/models/conformer/config.h>
#include <chorus/nn/layers/linear.h>

namespace chorus {

/// The weights of one convolution.
struct ConvWeights {
  ConvWeights() = default;
  ConvWeights(const Shape& shape, std::int64_t channels_out, std::int64_t fan_in, std::int64_t fan_out, bool with_bias = true);
  Param weight, bias;
  template <class V>
  void fields(V&& v) {
    v("weight", weight);
    v("bias", bias);
  }
};

struct EncodedRows {
  Tensor x;
  Rows rows;
};

/// Frames [F, mels] to fewer rows [T, d_model]. Lengths follow each strided convolution and nothing leaks over borders.
struct Subsampling {
  Subsampling() = default;
  explicit Subsampling(const ConformerConfig& config);
  bool depthwise_striding = true;
  std::int64_t mels = 0;
  ConvWeights conv0;                   ///< dw_striding: 3x3, stride 2, 1 -> C channels, ReLU
  std::vector<ConvWeights> depthwise;  ///< 3x3, stride 2, per channel
  std::vector<ConvWeights> pointwise;  ///< 1x1, C -> C, ReLU
  std::vector<ConvWeights> conv;       ///< conv1d
  Linear out;
  Unit unit;
  EncodedRows operator()(const Tensor& frames, const Rows& rows) const;
  template <class V>
  void fields(V&& v) {
    if (depthwise_striding) v("conv0", conv0);
    v("depthwise", depthwise);
    v("pointwise", pointwise);
    v("conv", conv);
    v("out", out);
    v("unit", unit);
  }
};

/// Rows that `frames` feature frames become.
std::int64_t subsampled_length(std::int64_t frames, int factor);

}  // namespace chorus
