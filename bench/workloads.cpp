#include "workloads.h"

#include <chorus/models/llm/model.h>

#include "flops.h"

namespace chorus::bench {

std::unique_ptr<Workload> make_workload(Context& context, const std::string& name, DType dtype, std::int64_t tokens) {
  if (name == "salm-small") return make_salm_small(context, dtype);
  if (name == "salm-110m") return make_salm_110m(context, dtype);
  if (name == "decoder") return make_decoder(context, dtype, tokens);
  fail("bench_step", "'", name, "'; salm-small, salm-110m and decoder are there");
}

std::unique_ptr<Workload> make_decoder(Context& context, DType dtype, std::int64_t tokens, const Part& part) {
  constexpr std::int64_t sequence = 1024;
  struct State {
    Llm model;
    Tensor ids, labels;
    Rows rows;
  };
  auto state = std::make_shared<State>();
  LlmConfig config{.vocab_size = 49152, .tie_word_embeddings = true};
  config.hidden_size = 576, config.num_hidden_layers = 30, config.num_attention_heads = 9, config.num_key_value_heads = 3;
  config.intermediate_size = 1536;
  state->model = Llm(config);

  std::vector<std::int64_t> lengths, sample_ids;
  for (std::int64_t at = 0; at < tokens; at += sequence) {
    lengths.push_back(std::min(sequence, tokens - at));
    sample_ids.push_back(at / sequence);
  }
  const auto count = std::ssize(lengths), begin = part.rank * count / part.ranks, end = (part.rank + 1) * count / part.ranks;
  require(begin < end, "decoder", count, " sequences of ", sequence, " tokens for ", part.ranks, " ranks");
  const auto own = [&](const std::vector<std::int64_t>& all) { return std::vector(all.begin() + begin, all.begin() + end); };
  const std::int64_t first = begin * sequence, own_tokens = std::min(end * sequence, tokens) - first;
  state->rows = make_rows(context, own(lengths), own(sample_ids));
  std::vector<std::int32_t> values;
  RandomStream draw(random_key(1, "bench"));
  for (std::int64_t t = 0; t <= tokens; ++t)
    values.push_back(static_cast<std::int32_t>(draw.below(static_cast<std::uint32_t>(config.vocab_size))));
  const std::span<const std::int32_t> all(values);
  const auto slice = [&](std::int64_t from, std::int64_t n) {
    return Tensor::of(context, {n}, all.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(n)));
  };
  state->ids = slice(first, own_tokens);
  state->labels = slice(first + 1, own_tokens);

  auto work = std::make_unique<Workload>();
  work->name = "decoder", work->letter = "c";
  work->store = materialize(state->model, context, {.dtype = dtype, .seed = 1, .shard = part.shard});
  work->tokens = static_cast<double>(own_tokens);
  work->flops = decoder_flops(config, own(lengths), own_tokens);
  work->checkpoint = [state](Recompute mode) { checkpoint_activations(state->model, "*unit", mode); };
  work->loss = [state, tokens](const Pass& pass) {
    const auto& model = state->model;
    return model.loss(model(model.embed(state->ids), state->rows, pass), state->labels,
                      {.scale = 1.0 / static_cast<double>(tokens), .label_smoothing = 0});
  };
  work->walk = [state, &context] {
    const auto& model = state->model;
    const Tensor nothing = Tensor::empty(context, {0}, DType::i32);
    return model.loss(model(model.embed(nothing), make_rows(context, {}, {}), {.training = true}), nothing, {});
  };
  work->inputs = {{"inputs/ids", slice(0, tokens)},
                  {"inputs/labels", slice(1, tokens)},
                  {"inputs/lengths", Tensor::of(context, {std::ssize(lengths)}, lengths)}};
  add_sizes(context, "sizes/llm.", config, work->inputs);
  work->inputs.push_back({"sizes/llm.vocab_size", Tensor::full(context, {}, DType::f64, config.vocab_size)});
  return work;
}

}  // namespace chorus::bench
