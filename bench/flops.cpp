#include "flops.h"

#include <chorus/models/conformer/subsampling.h>

#include <algorithm>

namespace chorus::bench {
namespace {

double number(std::int64_t n) { return static_cast<double>(n); }

double subsampling_flops(const ConformerConfig& config, std::span<const std::int64_t> frames) {
  const double d = config.d_model, c = config.subsampling_conv_channels;
  const int stages = config.subsampling_factor == 8 ? 3 : 2;
  double flops = 0, bins = config.features;
  std::vector<std::int64_t> lengths(frames.begin(), frames.end());
  for (int stage = 0; stage < stages; ++stage) {
    double rows = 0;
    for (auto& n : lengths) rows += number(n = (n + 1) / 2);  // kernel 3, stride 2, pad 1
    bins = static_cast<double>((static_cast<std::int64_t>(bins) + 1) / 2);
    // Forward and gradient of the weight; further down the gradient of the input too.
    const double passes = stage == 0 ? 2 : 3;
    if (config.subsampling == "conv1d") {
      flops += passes * 2 * rows * d * 3 * (stage == 0 ? config.features : d);
    } else {
      flops += passes * 2 * rows * bins * c * (stage == 0 ? 9 : c);
    }
  }
  double rows = 0;
  for (const auto n : lengths) rows += number(n);
  return flops + 6 * rows * d * (config.subsampling == "conv1d" ? d : bins * c);
}

}  // namespace

double decoder_flops(const LlmConfig& config, std::span<const std::int64_t> lengths, std::int64_t labelled) {
  const double h = config.hidden_size, inner = config.intermediate_size, d = config.head_size();
  const double q = config.num_attention_heads * d, kv = config.num_key_value_heads * d;
  double rows = 0, pairs = 0;
  for (const auto n : lengths) rows += number(n), pairs += number(n * (n + 1)) / 2;
  const double weights = 2 * h * q + 2 * h * kv + 3 * h * inner;
  return config.num_hidden_layers * (6 * weights * rows + 12 * q * pairs) +
         6 * h * config.vocab_size * static_cast<double>(labelled);
}

double encoder_flops(const ConformerConfig& config, std::span<const std::int64_t> frames) {
  const double d = config.d_model;
  const bool relative = config.self_attention_model == "rel_pos";
  double rows = 0, pairs = 0, longest = 0;
  for (const auto n : frames) {
    const double length = number(subsampled_length(n, config.subsampling_factor));
    rows += length, pairs += length * length, longest = std::max(longest, length);
  }
  // Two feed-forwards, four projections of attention, two pointwise convolutions (one twice as wide).
  const double weights = (4.0 * config.ff_expansion_factor + 4 + 3) * d * d;
  double flops = 6 * weights * rows + 6 * (relative ? 3 : 2) * d * pairs;
  if (relative) flops += 4 * d * d * (2 * longest - 1);  // forward and the weight's gradient: the encoding is constant
  return config.layers * flops + subsampling_flops(config, frames);
}

}  // namespace chorus::bench
