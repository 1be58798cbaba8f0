#pragma once
#include <chorus/models/llm/config.h>
#include <chorus/nn/layers/attention.h>
#include <chorus/nn/layers/feed_forward.h>
#include <chorus/tensor/ops/linear_cross_entropy.h>

namespace chorus {

/// Pre-norm block: x + attention(norm x), x + mlp(norm x).
struct LlmLayer {
  LlmLayer() = default;
  explicit LlmLayer(const LlmConfig& config);
  RmsNorm attention_norm;
  RotaryAttention attention;
  Dropout attention_dropout;
  RmsNorm mlp_norm;
  SwiGluMlp mlp;
  Dropout mlp_dropout;
  Unit unit;
  Tensor operator()(const Tensor& x, const Rows& rows, const Pass& pass) const;
  template <class V>
  void fields(V&& v) {
    v("attention_norm", attention_norm);
    v("attention", attention);
    v("attention_dropout", attention_dropout);
    v("mlp_norm", mlp_norm);
    v("mlp", mlp);
    v("mlp_dropout", mlp_dropout);
    v("unit", unit);
  }
};

/// Caches of all layers for B sequences, and how far each is filled.
struct LlmCache {
  std::vector<KeyValueCache> layers;
  std::vector<std::int32_t> lengths;    ///< rows in the cache, by sequence
  std::vector<std::int32_t> positions;  ///< rotary position of the next row, by sequence
};

struct Llm {
  Llm() = default;
  explicit Llm(const LlmConfig& config);
  LlmConfig config;
  Embedding embedding;
  std::vector<LlmLayer> layers;
  RmsNorm norm;
  std::optional<Linear> head;  ///< absent when tied; the loss reads its weight only, so a plan shards it through loss_core
  Port in;                     ///< of embedded rows, before the first layer
  Port out;                    ///< of the normed states, for whoever reads single rows of them
  Port loss_in;                ///< of the normed states, before the loss
  Port logits_out;
  Slot<Tensor(Tensor, Tensor, Tensor, const CrossEntropyOptions&)> loss_core;
  Unit embedding_unit, head_unit;  ///< the tables are large enough to be gathered by themselves

  /// Rows of the embedding, [T, hidden], for ids i32 [T].
  Tensor embed(const Tensor& ids) const { return embedding_unit.leave(embedding(ids)); }
  const Tensor& head_weight() const { return head ? head->weight.value : embedding.weight.value; }
  /// Embedded rows [T, hidden] to normed states [T, hidden], for `loss`.
  Tensor operator()(const Tensor& embedded, const Rows& rows, const Pass& pass) const;
  /// options.scale * sum of cross-entropies of states [T, hidden] against labels i32 [T].
  Tensor loss(const Tensor& states, const Tensor& labels, const CrossEntropyOptions& options) const;
  Tensor logits(const Tensor& states) const;

  /// Runs the prompts in evaluation mode and keeps their keys and values in `cache`, `capacity` rows per sequence; returns
  /// the states [T, hidden].
  Tensor prefill(const Tensor& embedded, const Rows& rows, std::int64_t capacity, LlmCache& cache) const;
  /// One more row for each sequence: embedded [B, hidden] -> states [B, hidden].
  Tensor decode(const Tensor& embedded, LlmCache& cache) const;

  template <class V>
  void fields(V&& v) {
    v("embedding", embedding);
    v("layers", layers);
    v("norm", norm);
    v("head", head);
    v("in", in);
    v("out", out);
    v("loss_in", loss_in);
    v("logits_out", logits_out);
    v("loss_core", loss_core);
    v("embedding_unit", embedding_unit);
    if (head) v("head_unit", head_unit);
  }
};

}  // namespace chorus
