#pragma once
#include <chorus/core/config.h>

namespace chorus {

/// A decoder of the Llama family (Touvron et al. 2023). Names as in Hugging Face's LlamaConfig.
struct LlmConfig {
  int vocab_size = 32000;  ///< no key: the tokenizer's
  int hidden_size = 576, num_hidden_layers = 30;
  int num_attention_heads = 9, num_key_value_heads = 3;
  int head_dim = 0;  ///< 0: hidden_size / num_attention_heads
  int intermediate_size = 1536;
  double rope_theta = 10000, rms_norm_eps = 1e-5;
  bool tie_word_embeddings = false;  ///< the head's weight is the embedding
  double embedding_std = 0.02;
  double dropout = 0, attention_dropout = 0;

  int head_size() const { return head_dim ? head_dim : hidden_size / num_attention_heads; }
  template <class V>
  void fields(V&& v) {
    v("hidden_size", hidden_size, "features of a row", between(1, 65536));
    v("num_hidden_layers", num_hidden_layers, "decoder blocks", between(0, 1000));
    v("num_attention_heads", num_attention_heads, "query heads", between(1, 1024));
    v("num_key_value_heads", num_key_value_heads, "key/value heads", between(1, 1024));
    v("head_dim", head_dim, "features of a head; 0: hidden_size / num_attention_heads", between(0, 4096), multiple_of(2));
    v("intermediate_size", intermediate_size, "inner features of the feed-forward", between(1, 1 << 20));
    v("rope_theta", rope_theta, "base of the rotary positions", greater_than(0.0));
    v("rms_norm_eps", rms_norm_eps, "", greater_than(0.0));
    v("tie_word_embeddings", tie_word_embeddings, "the head is the embedding");
    v("embedding_std", embedding_std, "deviation of the embedding's first values", greater_than(0.0));
    v("dropout", dropout, "after attention and feed-forward", between(0.0, 0.99));
    v("attention_dropout", attention_dropout, "of attention probabilities", between(0.0, 0.99));
  }
  template <class Check>
  void rules(Check&& check) const {
    check(num_attention_heads % num_key_value_heads == 0, "num_key_value_heads", num_key_value_heads,
          " doesn't divide num_attention_heads ", num_attention_heads);
    check(head_dim > 0 || (hidden_size % num_attention_heads == 0 && head_size() % 2 == 0), "num_attention_heads",
          "hidden_size ", hidden_size, " over ", num_attention_heads, " heads gives no even head_dim; set head_dim");
  }
};

}  // namespace chorus
