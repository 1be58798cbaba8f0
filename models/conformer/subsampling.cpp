#include <chorus/models/conformer/subsampling.h>
#include <chorus/tensor/ops/conv.h>
#include <chorus/tensor/ops/linear.h>
#include <chorus/tensor/ops/pointwise.h>

#include <cmath>

namespace chorus {
namespace {

std::int64_t halved(std::int64_t n) { return conv_length(n, 3, 2, 1); }

Rows halved(const Rows& rows) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t s = 0; s < rows.sequences(); ++s) lengths.push_back(halved(rows.length(s)));
  return with_lengths(rows, lengths);
}

int stages_of(int factor) {
  require(factor == 4 || factor == 8, "subsampling", "factor ", factor, "; 4 and 8 are there");
  return factor == 8 ? 3 : 2;
}

}  // namespace

ConvWeights::ConvWeights(const Shape& shape, std::int64_t channels_out, std::int64_t fan_in, std::int64_t fan_out,
                         bool with_bias)
    : weight(shape, Init::xavier(fan_in, fan_out)) {
  if (with_bias) bias = Param({channels_out}, Init::bounded(1 / std::sqrt(static_cast<double>(fan_in))));  // see Linear
}

std::int64_t subsampled_length(std::int64_t frames, int factor) {
  for (int i = 0; i < stages_of(factor); ++i) frames = halved(frames);
  return frames;
}

Subsampling::Subsampling(const ConformerConfig& config)
    : depthwise_striding(config.subsampling == "dw_striding"), mels(config.features) {
  require(depthwise_striding || config.subsampling == "conv1d", "subsampling", "'", config.subsampling,
          "'; dw_striding and conv1d are there");
  const std::int64_t d = config.d_model, c = config.subsampling_conv_channels;
  const int stages = stages_of(config.subsampling_factor);
  if (!depthwise_striding) {
    for (int i = 0; i < stages; ++i) {
      const std::int64_t in = i == 0 ? mels : d;
      conv.push_back(ConvWeights({d, 3 * in}, d, 3 * in, 3 * d));
    }
    out = Linear(d, d);
    return;
  }
  conv0 = ConvWeights({c, 9}, c, 9, 9 * c);
  std::int64_t bins = halved(mels);
  for (int i = 1; i < stages; ++i) {
    depthwise.push_back(ConvWeights({9, c}, c, 9, 9));
    pointwise.push_back(ConvWeights({c, c}, c, c, c));
    bins = halved(bins);
  }
  out = Linear(bins * c, d);
}

EncodedRows Subsampling::operator()(const Tensor& frames, const Rows& rows) const {
  require(frames.rank() == 2 && frames.cols() == mels && frames.rows() == rows.count(), "subsampling", "frames ", frames,
          "; expected (", rows.count(), ", ", mels, ")");
  std::vector<Rows> stages{rows};  // before and after each strided convolution
  for (std::size_t i = 0; i < (depthwise_striding ? 1 + depthwise.size() : conv.size()); ++i)
    stages.push_back(halved(stages.back()));
  const Tensor y = unit(frames, [this, stages](Tensor x) {
    for (std::size_t i = 0; i < conv.size(); ++i)
      x = silu(conv1d(x, stages[i], stages[i + 1], conv[i].weight.value, conv[i].bias.value, 3, 2, 1));
    if (!depthwise_striding) return out(x);
    const std::int64_t channels = conv0.weight.global[0];
    std::int64_t bins = mels;
    x = relu(conv2d_subsample(x, stages[0], stages[1], conv0.weight.value, conv0.bias.value, static_cast<int>(bins)));
    bins = halved(bins);  // x is [T/2, bins * channels]
    for (std::size_t i = 0; i < depthwise.size(); ++i) {
      const Tensor mixed = depthwise_conv2d_subsample(x, stages[i + 1], stages[i + 2], depthwise[i].weight.value,
                                                      depthwise[i].bias.value, static_cast<int>(bins));
      bins = halved(bins);
      const std::int64_t count = stages[i + 2].count();
      const Tensor pointed =
          linear(mixed.reshaped({count * bins, channels}), pointwise[i].weight.value, pointwise[i].bias.value);
      x = relu(pointed).reshaped({count, bins * channels});
    }
    return out(x);
  });
  return {y, stages.back()};
}

}  // namespace chorus
