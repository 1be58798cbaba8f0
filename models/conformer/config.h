#pragma once
#include <chorus/core/config.h>

#include <string>

namespace chorus {

/// FastConformer encoder. Names and defaults are those of NeMo's ConformerEncoder unless a line says otherwise.
struct ConformerConfig {
  int features = 128;  ///< mel bands of the input; no key: the front end's
  int d_model = 512, layers = 17, heads = 8;
  int ff_expansion_factor = 4, conv_kernel_size = 9;
  std::string subsampling = "dw_striding";       ///< or "conv1d": kernel 3, stride 2 over frames, SiLU
  int subsampling_factor = 8;                    ///< 4 or 8
  int subsampling_conv_channels = 256;           ///< dw_striding only; conv1d has d_model
  std::string self_attention_model = "rel_pos";  ///< or "rotary"
  std::string conv_norm = "layer_norm";          ///< or "batch_norm"
  std::string batch_norm_mode = "frozen";        ///< or "step"
  bool use_bias = true;                          ///< of the linear layers and convolutions in the blocks
  bool attention_bias = true;                    ///< of the attention's projections
  bool xscaling = false;                         ///< multiply the subsampled frames by sqrt(d_model)
  bool final_norm = false;                       ///< a layer norm after the last block
  double dropout = 0.1, dropout_pre_encoder = 0.1, dropout_att = 0.1;

  template <class V>
  void fields(V&& v) {
    v("d_model", d_model, "features of a row", between(2, 65536), multiple_of(2));
    v("layers", layers, "conformer blocks", between(0, 1000));
    v("heads", heads, "attention heads", between(1, 1024));
    v("ff_expansion_factor", ff_expansion_factor, "inner features of a feed-forward over d_model", between(1, 64));
    v("conv_kernel_size", conv_kernel_size, "taps of the depthwise convolution, odd", between(1, 1023));
    v("subsampling", subsampling, "convolutions in front", one_of("dw_striding", "conv1d"));
    v("subsampling_factor", subsampling_factor, "frames per row", satisfies([](int n) { return n == 4 || n == 8; }, "4 or 8"));
    v("subsampling_conv_channels", subsampling_conv_channels, "channels of dw_striding", between(1, 8192));
    v("self_attention_model", self_attention_model, "positions of the attention", one_of("rel_pos", "rotary"));
    v("conv_norm", conv_norm, "normalisation in the convolution module", one_of("layer_norm", "batch_norm"));
    v("batch_norm_mode", batch_norm_mode, "statistics of batch_norm", one_of("frozen", "step"));
    v("use_bias", use_bias, "biases in the blocks");
    v("attention_bias", attention_bias, "biases of the attention's projections");
    v("xscaling", xscaling, "multiply rows by sqrt(d_model)");
    v("final_norm", final_norm, "layer norm after the last block");
    v("dropout", dropout, "", between(0.0, 0.99));
    v("dropout_pre_encoder", dropout_pre_encoder, "after the subsampling", between(0.0, 0.99));
    v("dropout_att", dropout_att, "of attention probabilities", between(0.0, 0.99));
  }
  template <class Check>
  void rules(Check&& check) const {
    check(d_model % heads == 0, "heads", "d_model ", d_model, " is no multiple of heads ", heads);
    check(self_attention_model != "rotary" || d_model % heads != 0 || d_model / heads % 2 == 0, "heads", "d_model ", d_model,
          " over ", heads, " heads gives ", d_model / heads, " features a head; rotary attention needs an even number");
    check(conv_kernel_size % 2 == 1, "conv_kernel_size", conv_kernel_size, " is even");
  }
};

}  // namespace chorus
