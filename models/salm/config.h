#pragma once
#include <chorus/models/conformer/config.h>
#include <chorus/models/llm/config.h>

namespace chorus {

/// A speech-LLM: the encoder's output takes the place of audio tags in the decoder's input. Everything that isn't NeMo's
/// SALM is a switch that is off by default.
struct SalmConfig {
  ConformerConfig encoder;
  LlmConfig llm;
  bool perception = true;                     ///< false: the decoder alone, trained on text
  bool decoder = true;                        ///< false: the encoder with its CTC head alone
  std::string modality_adapter = "identity";  ///< or "conformer": more conformer layers before the projection
  int adapter_layers = 2;
  bool projection_norm = false;           ///< an RMSNorm after the projection
  bool ctc_head = false;                  ///< a CTC head on the encoder; blank is its last class
  bool ctc_compressor = false;            ///< average runs of equal CTC argmax, drop blank runs (Gaido et al. 2021)
  bool ctc_posteriors = false;            ///< append sqrt(d_model) * softmax of the CTC logits, without gradient, to each frame
  double encoder_chunk_size_seconds = 0;  ///< of transcription and evaluation; 0: recordings stay whole
  bool restart_text_positions = false;    ///< rotary positions count text items and each audio's items from 0 on their own

  template <class V>
  void fields(V&& v) {
    v("perception", perception, "false: the decoder alone, trained on text");
    v("decoder", decoder, "false: the encoder with its CTC head alone");
    v("modality_adapter", modality_adapter, "between encoder and projection", one_of("identity", "conformer"));
    v("adapter_layers", adapter_layers, "blocks of a conformer adapter", between(1, 1000));
    v("projection_norm", projection_norm, "RMSNorm after the projection");
    v("ctc_head", ctc_head, "a CTC head on the encoder");
    v("ctc_compressor", ctc_compressor, "average runs of equal CTC argmax, drop blank runs");
    v("ctc_posteriors", ctc_posteriors, "append scaled CTC posteriors to each frame");
    v("restart_text_positions", restart_text_positions, "rotary positions of text count from 0 beside those of audio");
    v("encoder_chunk_size_seconds", encoder_chunk_size_seconds,
      "transcription and evaluation hear longer recordings in chunks of so many seconds, each by itself; 0: whole",
      at_least(0.0));
    v("encoder", encoder, "FastConformer");
    v("llm", llm, "decoder of the Llama family");
  }
  template <class Check>
  void rules(Check&& check) const {
    check(perception || decoder, "perception", "and decoder are both false: nothing to train");
    check(perception || !ctc_head, "ctc_head", "sits on the encoder, which perception = false leaves out");
    check(decoder || ctc_head || !perception, "decoder", "without a decoder there must be a ctc_head");
    check(ctc_head || !ctc_compressor, "ctc_compressor", "needs ctc_head = true");
    check(ctc_head || !ctc_posteriors, "ctc_posteriors", "needs ctc_head = true");
  }
};

}  // namespace chorus
