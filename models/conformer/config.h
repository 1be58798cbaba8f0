#pragma once
#include <string>

namespace chorus {

/// FastConformer encoder. Names and defaults are those of NeMo's ConformerEncoder unless a line says otherwise.
struct ConformerConfig {
  int features = 128;                            ///< mel bands of the input
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
};

}  // namespace chorus
