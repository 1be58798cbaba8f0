#pragma once
#include <chorus/models/conformer/config.h>
#include <chorus/models/llm/config.h>

namespace chorus {

/// A speech-LLM: the encoder's output takes the place of audio tags in the decoder's input. Everything that isn't NeMo's
/// SALM is a switch that is off by default.
struct SalmConfig {
  ConformerConfig encoder;
  LlmConfig llm;
  bool decoder = true;                    ///< false: the encoder with its CTC head alone
  std::string modality_adapter = "identity";  ///< or "conformer": more conformer layers before the projection
  int adapter_layers = 2;
  bool projection_norm = false;           ///< an RMSNorm after the projection
  bool ctc_head = false;                  ///< a CTC head on the encoder; blank is its last class
  bool ctc_compressor = false;            ///< average runs of equal CTC argmax, drop blank runs (Gaido et al. 2021)
  bool ctc_posteriors = false;            ///< append sqrt(d_model) * softmax of the CTC logits, without gradient, to each frame
  bool restart_text_positions = false;    ///< rotary positions count text items and each audio's items from 0 on their own
};

}  // namespace chorus
