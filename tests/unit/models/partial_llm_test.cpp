// A decoder that holds only some heads of each layer: what its caches hold follows from the layers, not from the configuration.
#include <chorus/models/llm/model.h>
#include <chorus/nn/materialize.h>
#include <op_cases/op_case.h>

namespace chorus::testing {
namespace {

constexpr int head_size = 4, kept_heads = 2;  // of 6 query heads; kept: those of the second of three key/value heads

Llm small_decoder(Context& context) {
  LlmConfig config{.vocab_size = 11, .tie_word_embeddings = true};
  config.hidden_size = 24, config.num_hidden_layers = 2, config.intermediate_size = 10;
  config.num_attention_heads = 6, config.num_key_value_heads = 3;
  Llm model(config);
  materialize(model, context, {.dtype = DType::f64, .seed = 5, .freeze = {}});
  return model;
}

/// Without the outputs of the other heads the whole layer does what the part of it does.
TEST(PartialLlm, CachesHoldTheHeadsThatAreHere) {
  Context context;
  const NoGrad quiet(context);
  Llm whole = small_decoder(context), part = small_decoder(context);
  const std::int64_t q = 6 * head_size, first = kept_heads * head_size, k = q + head_size, v = k + 3 * head_size;
  for (std::size_t i = 0; i < part.layers.size(); ++i) {
    const auto silence = [&](Tensor& out, bool keep_only) {
      const auto all = out.to_doubles();
      std::vector<double> kept;
      for (std::int64_t r = 0; r < 24; ++r)
        for (std::int64_t c = 0; c < q; ++c) {
          const bool here = c >= first && c < first + kept_heads * head_size;
          if (here || !keep_only) kept.push_back(here ? all[static_cast<std::size_t>(r * q + c)] : 0);
        }
      out = Tensor::of(context, {24, keep_only ? kept_heads * head_size : q}, kept);
    };
    silence(whole.layers[i].attention.out.weight.value, false);
    auto& attention = part.layers[i].attention;
    silence(attention.out.weight.value, true);
    Tensor& weight = attention.qkv.weight.fused.value;
    Tensor cut = Tensor::empty(context, {4 * head_size, 24}, DType::f64);
    cut.rows_view(0, 2 * head_size).copy_from(weight.rows_view(first, first + 2 * head_size));
    cut.rows_view(2 * head_size, 3 * head_size).copy_from(weight.rows_view(k, k + head_size));
    cut.rows_view(3 * head_size, 4 * head_size).copy_from(weight.rows_view(v, v + head_size));
    weight = cut;
    for (const auto& [part, begin, size] :
         {std::tuple{0, first, kept_heads * head_size}, {1, head_size, head_size}, {2, head_size, head_size}}) {
      Box& box = attention.qkv.weight.parts[static_cast<std::size_t>(part)].second.box;
      box.begin[0] = begin, box.size[0] = size;
    }
  }
  const auto decoded = [&](const Llm& model, std::int64_t cached_features) {
    const Rows rows = make_rows(context, std::vector<std::int64_t>{3, 2}, std::vector<std::int64_t>{0, 1});
    const auto ids = [&](const std::vector<std::int32_t>& tokens) {
      return Tensor::of(context, {static_cast<std::int64_t>(tokens.size())}, tokens);
    };
    LlmCache cache;
    auto states = model.prefill(model.embedding(ids({1, 2, 3, 4, 5})), rows, 6, cache).to_doubles();
    EXPECT_EQ(cache.layers[1].keys.shape(), (Shape{2, 6, cached_features}));
    const auto next = model.decode(model.embedding(ids({6, 7})), cache).to_doubles();
    states.insert(states.end(), next.begin(), next.end());
    return states;
  };
  expect_close("states", decoded(part, head_size), decoded(whole, 3 * head_size), 1e-13);
}

}  // namespace
}  // namespace chorus::testing
