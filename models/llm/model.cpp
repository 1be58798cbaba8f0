#include <chorus/models/llm/model.h>
#include <chorus/tensor/ops/linear.h>
#include <chorus/tensor/ops/pointwise.h>

namespace chorus {

LlmLayer::LlmLayer(const LlmConfig& config)
    : attention_norm(config.hidden_size, config.rms_norm_eps),
      attention(config.hidden_size, {.heads = config.num_attention_heads,
                                     .kv_heads = config.num_key_value_heads,
                                     .head_dim = config.head_size(),
                                     .causal = true,
                                     .bias = false,
                                     .rope_base = config.rope_theta,
                                     .dropout = config.attention_dropout}),
      attention_dropout{.p = config.dropout},
      mlp_norm(config.hidden_size, config.rms_norm_eps),
      mlp(config.hidden_size, config.intermediate_size),
      mlp_dropout{.p = config.dropout} {}

Tensor LlmLayer::operator()(const Tensor& input, const Rows& rows, const Pass& pass) const {
  return unit(input, [this, rows, pass](Tensor x) {
    x = add(x, attention_dropout(attention(attention_norm(x), rows, pass), rows, pass));
    return add(x, mlp_dropout(mlp(mlp_norm(x)), rows, pass));
  });
}

Llm::Llm(const LlmConfig& config)
    : config(config),
      embedding(config.vocab_size, config.hidden_size, Init::gaussian(config.embedding_std)),
      norm(config.hidden_size, config.rms_norm_eps) {
  require(config.num_attention_heads % config.num_key_value_heads == 0, "llm", config.num_attention_heads, " query heads for ",
          config.num_key_value_heads, " key/value heads");
  for (int i = 0; i < config.num_hidden_layers; ++i) layers.emplace_back(config);
  if (!config.tie_word_embeddings)
    head.emplace(config.hidden_size, config.vocab_size, LinearOptions{.bias = false, .init = {}});
}

Tensor Llm::operator()(const Tensor& embedded, const Rows& rows, const Pass& pass) const {
  Tensor x = in(embedded);
  for (const auto& layer : layers) x = layer(x, rows, pass);
  return norm(cast(x, norm.weight.value.dtype()));
}

Tensor Llm::loss(const Tensor& states, const Tensor& labels, const CrossEntropyOptions& options) const {
  CrossEntropyOptions held = options;
  held.part = rows_held(head ? head->weight : embedding.weight);
  return loss_core(linear_cross_entropy, cast(loss_in(states), head_weight().dtype()), head_weight(), labels, held);
}

Tensor Llm::logits(const Tensor& states) const {
  return logits_out(linear(cast(loss_in(states), head_weight().dtype()), head_weight()));
}

Tensor Llm::prefill(const Tensor& embedded, const Rows& rows, std::int64_t capacity, LlmCache& cache) const {
  require(rows.longest() <= capacity, "prefill", "a prompt of ", rows.longest(), " rows for a cache of ", capacity);
  cache = {};
  for (std::int64_t b = 0; b < rows.sequences(); ++b) {
    cache.lengths.push_back(static_cast<std::int32_t>(rows.length(b)));
    cache.positions.push_back(rows.length(b) ? rows.positions.as<std::int32_t>()[rows.begin(b + 1) - 1] + 1 : 0);
  }
  Tensor x = in(embedded);
  for (const auto& layer : layers) {
    auto& cached = cache.layers.emplace_back();
    x = layer.unit.enter(x);
    const auto heads = layer.attention.heads_held();
    const Shape shape{rows.sequences(), capacity, std::int64_t{heads.kv_heads} * config.head_size()};
    cached.keys = Tensor::empty(x.context(), shape, x.dtype());
    cached.values = Tensor::empty(x.context(), shape, x.dtype());
    x = add(x, layer.attention.prefill(layer.attention_norm(x), rows, cached));
    x = layer.unit.leave(add(x, layer.mlp(layer.mlp_norm(x))));
  }
  return out(norm(cast(x, norm.weight.value.dtype())));
}

Tensor Llm::decode(const Tensor& embedded, LlmCache& cache) const {
  Context& context = embedded.context();
  const auto batch = static_cast<std::int64_t>(cache.lengths.size());
  const std::vector<std::int64_t> ones(cache.lengths.size(), 1), ids(cache.lengths.size(), 0);
  Rows rows = make_rows(context, ones, ids);
  rows.positions.copy_from_host(cache.positions.data());
  const Tensor lengths = Tensor::of(context, {batch}, cache.lengths);
  Tensor x = in(embedded);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& layer = layers[i];
    x = layer.unit.enter(x);
    x = add(x, layer.attention.decode(layer.attention_norm(x), rows, cache.layers[i], lengths));
    x = layer.unit.leave(add(x, layer.mlp(layer.mlp_norm(x))));
  }
  for (auto& n : cache.lengths) ++n;
  for (auto& p : cache.positions) ++p;
  return out(norm(cast(x, norm.weight.value.dtype())));
}

}  // namespace chorus
