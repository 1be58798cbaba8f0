#pragma once

namespace chorus {

/// A decoder of the Llama family (Touvron et al. 2023). Names as in Hugging Face's LlamaConfig.
struct LlmConfig {
  int vocab_size = 32000, hidden_size = 576, num_hidden_layers = 30;
  int num_attention_heads = 9, num_key_value_heads = 3;
  int head_dim = 0;                  ///< 0: hidden_size / num_attention_heads
  int intermediate_size = 1536;
  double rope_theta = 10000, rms_norm_eps = 1e-5;
  bool tie_word_embeddings = false;  ///< the head's weight is the embedding
  double embedding_std = 0.02;
  double dropout = 0, attention_dropout = 0;

  int head_size() const { return head_dim ? head_dim : hidden_size / num_attention_heads; }
};

}  // namespace chorus
