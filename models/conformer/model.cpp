#include <chorus/models/conformer/model.h>
#include <chorus/tensor/ops/conv.h>
#include <chorus/tensor/ops/pointwise.h>

#include <cmath>

namespace chorus {

ConformerAttention::ConformerAttention(const ConformerConfig& config) : norm(config.d_model), out_dropout{.p = config.dropout} {
  require(config.d_model % config.heads == 0, "conformer", "d_model ", config.d_model, " is no multiple of heads ",
          config.heads);
  if (config.self_attention_model == "rel_pos") {
    relative.emplace(config.d_model, RelativeAttention::Options{
                                         .heads = config.heads, .bias = config.attention_bias, .dropout = config.dropout_att});
    return;
  }
  require(config.self_attention_model == "rotary", "conformer", "self_attention_model '", config.self_attention_model,
          "'; rel_pos and rotary are there");
  rotary.emplace(config.d_model, RotaryAttention::Options{.heads = config.heads,
                                                          .kv_heads = config.heads,
                                                          .head_dim = config.d_model / config.heads,
                                                          .causal = false,
                                                          .bias = config.attention_bias,
                                                          .rope_base = 10000,
                                                          .dropout = config.dropout_att});
}

Tensor ConformerAttention::operator()(const Tensor& x, const Tensor& encoding, const Rows& rows, const Pass& pass) const {
  const Tensor normed = norm(x);
  return out_dropout(relative ? (*relative)(normed, encoding, rows, pass) : (*rotary)(normed, rows, pass), rows, pass);
}

ConformerConvolution::ConformerConvolution(const ConformerConfig& config)
    : norm(config.d_model),
      pointwise1(config.d_model, 2 * config.d_model, {.bias = config.use_bias, .init = {}}),
      depthwise({config.conv_kernel_size, config.d_model}, config.d_model, config.conv_kernel_size, config.conv_kernel_size,
                config.use_bias),
      pointwise2(config.d_model, config.d_model, {.bias = config.use_bias, .init = {}}),
      dropout{.p = config.dropout} {
  require(config.conv_kernel_size % 2 == 1, "conformer", "conv_kernel_size ", config.conv_kernel_size,
          "; an odd number is needed");
  if (config.conv_norm == "layer_norm") {
    layer_norm.emplace(config.d_model);
    return;
  }
  require(config.conv_norm == "batch_norm", "conformer", "conv_norm '", config.conv_norm,
          "'; layer_norm and batch_norm are there");
  const bool step = config.batch_norm_mode == "step";
  require(step || config.batch_norm_mode == "frozen", "conformer", "batch_norm_mode '", config.batch_norm_mode,
          "'; frozen and step are there");
  batch_norm.emplace(config.d_model, step ? BatchNorm::Mode::step : BatchNorm::Mode::frozen);
}

Tensor ConformerConvolution::operator()(const Tensor& x, const Rows& rows, const Pass& pass) const {
  const Tensor gated = glu(pointwise1(norm(x)));
  const auto kernel = static_cast<int>(depthwise.weight.global[0]);
  const Tensor mixed =
      depthwise_out(depthwise_conv1d(depthwise_in(gated), rows, depthwise.weight.value, depthwise.bias.value, kernel / 2));
  const Tensor normed = layer_norm ? (*layer_norm)(mixed) : (*batch_norm)(mixed, pass);
  return dropout(pointwise2(silu(normed)), rows, pass);
}

ConformerLayer::ConformerLayer(const ConformerConfig& config)
    : ff1(config.d_model, std::int64_t{config.ff_expansion_factor} * config.d_model, config.use_bias, config.dropout),
      attention(config),
      conv(config),
      ff2(config.d_model, std::int64_t{config.ff_expansion_factor} * config.d_model, config.use_bias, config.dropout),
      norm_out(config.d_model) {}

Tensor ConformerLayer::operator()(const Tensor& input, const Tensor& encoding, const Rows& rows, const Pass& pass) const {
  return unit(input, [this, encoding, rows, pass](Tensor x) {
    x = add_scaled(x, ff1(x, rows, pass), 0.5);
    x = add(x, attention(x, encoding ? cast(encoding, x.dtype()) : encoding, rows, pass));
    x = add(x, conv(x, rows, pass));
    x = add_scaled(x, ff2(x, rows, pass), 0.5);
    return norm_out(x);
  });
}

Conformer::Conformer(const ConformerConfig& config)
    : config(config), subsampling(config), pre_dropout{.p = config.dropout_pre_encoder} {
  for (int i = 0; i < config.layers; ++i) layers.emplace_back(config);
  if (config.final_norm) norm_final.emplace(config.d_model);
}

EncodedRows Conformer::operator()(const Tensor& frames, const Rows& frame_rows, const Pass& pass) const {
  auto [x, rows] = subsampling(frames, frame_rows);  // [T, d_model]
  if (config.xscaling) x = scale(x, std::sqrt(static_cast<double>(config.d_model)));
  x = in(pre_dropout(x, rows, pass));
  Tensor encoding;
  if (config.self_attention_model == "rel_pos")
    encoding = relative_encoding(x.context(), rows.longest(), config.d_model, x.dtype());
  for (const auto& layer : layers) x = layer(x, encoding, rows, pass);
  x = cast(x, frames.dtype());
  return {out(norm_final ? (*norm_final)(x) : x), rows};
}

}  // namespace chorus
