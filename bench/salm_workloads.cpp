#include <chorus/models/salm/model.h>

#include <cmath>

#include "flops.h"
#include "utterances.h"
#include "workloads.h"

namespace chorus::bench {
namespace {

/// What differs between the two speech models besides their configuration.
struct Plan {
  std::int64_t ctc_classes = 0;
  std::int32_t audio_tag = 0, first_piece = 3, pieces = 0;  ///< text tokens are drawn from [first_piece, first_piece + pieces)
  std::vector<std::int64_t> frames, texts;                  ///< of each utterance: feature frames and text tokens
  SalmLossOptions options;
};

struct State {
  Salm model;
  SalmBatch batch;
  SalmLossOptions options;
};

constexpr std::int32_t bos = 1, eos = 2;

void make_batch(Context& context, const SalmConfig& config, const Plan& plan, DType dtype, State& state) {
  SalmBatch& batch = state.batch;
  std::vector<std::int64_t> ids(plan.frames.size());
  for (std::size_t s = 0; s < ids.size(); ++s) ids[s] = static_cast<std::int64_t>(s);
  batch.audio_tag = plan.audio_tag;
  batch.frames = make_rows(context, plan.frames, ids);
  batch.features = Tensor::empty(context, {batch.frames.count(), config.encoder.features}, dtype);
  std::vector<float> noise(static_cast<std::size_t>(batch.features.numel()));
  fill_normal(random_key(1, "bench"), 0, noise, 0, 1);
  dispatch<float, bf16>(dtype, "bench", [&]<class T>() {
    std::transform(noise.begin(), noise.end(), batch.features.as<T>(), [](float x) { return T(x); });
  });
  RandomStream draw(random_key(1, "text"));
  for (std::size_t s = 0; s < ids.size(); ++s) {
    std::vector<std::int32_t> text;
    for (std::int64_t i = 0; i < plan.texts[s]; ++i)
      text.push_back(plan.first_piece + static_cast<std::int32_t>(draw.below(static_cast<std::uint32_t>(plan.pieces))));
    Conversation c{ids[s], {plan.audio_tag, bos}, {0, 0}};
    c.tokens.insert(c.tokens.end(), text.begin(), text.end());
    c.tokens.push_back(eos);
    c.answer.resize(c.tokens.size(), 1);
    state.options.counts.labels += std::ssize(text) + 1;
    if (plan.ctc_classes) state.options.counts.ctc_targets += std::ssize(text);
    batch.conversations.push_back(std::move(c));
    if (plan.ctc_classes) batch.transcripts.push_back(std::move(text));
  }
}

void add_inputs(Context& context, SalmConfig& config, const Plan& plan, const State& state, Workload& work) {
  std::vector<std::int32_t> tokens;
  std::vector<std::uint8_t> answers;
  std::vector<std::int64_t> token_counts;
  for (const auto& c : state.batch.conversations) {
    tokens.insert(tokens.end(), c.tokens.begin(), c.tokens.end());
    answers.insert(answers.end(), c.answer.begin(), c.answer.end());
    token_counts.push_back(std::ssize(c.tokens));
  }
  auto& to = work.inputs;
  to.push_back({"inputs/features", state.batch.features});
  to.push_back({"inputs/frames", Tensor::of(context, {std::ssize(plan.frames)}, plan.frames)});
  to.push_back({"inputs/tokens", Tensor::of(context, {std::ssize(tokens)}, tokens)});
  to.push_back({"inputs/answers", Tensor::of(context, {std::ssize(answers)}, answers)});
  to.push_back({"inputs/token_counts", Tensor::of(context, {std::ssize(token_counts)}, token_counts)});
  add_sizes(context, "sizes/", config, to);
  add_sizes(context, "sizes/encoder.", config.encoder, to);
  add_sizes(context, "sizes/llm.", config.llm, to);
  const auto size = [&](const char* key, double value) {
    to.push_back({std::string("sizes/") + key, Tensor::full(context, {}, DType::f64, value)});
  };
  size("encoder.features", config.encoder.features), size("llm.vocab_size", config.llm.vocab_size);
  size("audio_tag", plan.audio_tag), size("ctc_classes", static_cast<double>(plan.ctc_classes));
  size("llm_weight", plan.options.llm_weight), size("ctc_weight", plan.options.ctc_weight);
  size("label_smoothing", plan.options.label_smoothing);
}

/// Rows of the decoder: what the bridge makes of each audio (a compressor's choice depends on the weights, so this is that of
/// the first weights without dropout) and the text.
std::vector<std::int64_t> decoder_lengths(Context& context, const State& state) {
  const NoGrad quiet(context);
  const EncodedRows audio = state.model.bridge(state.model.hear(state.batch.features, state.batch.frames, Pass{}), Pass{});
  std::vector<std::int64_t> lengths;
  for (std::size_t s = 0; s < state.batch.conversations.size(); ++s)
    lengths.push_back(audio.rows.length(static_cast<std::int64_t>(s)) + std::ssize(state.batch.conversations[s].tokens) - 2);
  return lengths;
}

std::unique_ptr<Workload> make_salm(Context& context, SalmConfig config, const Plan& plan, DType dtype) {
  auto work = std::make_unique<Workload>();
  auto state = std::make_shared<State>();
  state->model = Salm(config, plan.ctc_classes);
  state->options = plan.options;
  work->store = materialize(state->model, context, {.dtype = dtype, .seed = 1, .freeze = {}});
  make_batch(context, config, plan, dtype, *state);
  add_inputs(context, config, plan, *state, *work);
  const auto lengths = decoder_lengths(context, *state);
  double encoder_rows = 0, audio_rows = 0;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    work->tokens += static_cast<double>(lengths[s]);
    audio_rows += static_cast<double>(lengths[s] + 2 - std::ssize(state->batch.conversations[s].tokens));
    encoder_rows += static_cast<double>(subsampled_length(plan.frames[s], config.encoder.subsampling_factor));
  }
  const double d = config.encoder.d_model, classes = static_cast<double>(plan.ctc_classes);
  work->flops = encoder_flops(config.encoder, plan.frames) + 6 * d * classes * encoder_rows +
                6 * (d + (config.ctc_posteriors ? classes : 0)) * config.llm.hidden_size * audio_rows +
                decoder_flops(config.llm, lengths, state->options.counts.labels);
  work->checkpoint = [state](Recompute mode) { checkpoint_activations(state->model, "*unit", mode); };
  work->loss = [state](const Pass& pass) { return state->model.loss(state->batch, state->options, pass).total; };
  return work;
}

}  // namespace

std::unique_ptr<Workload> make_salm_small(Context& context, DType dtype) {
  SalmConfig config;
  config.ctc_head = config.ctc_compressor = config.ctc_posteriors = config.projection_norm = true;
  config.restart_text_positions = true;
  auto& e = config.encoder;
  e.features = 80, e.d_model = 144, e.layers = 4, e.heads = 4, e.conv_kernel_size = 15, e.subsampling_factor = 4;
  e.subsampling = "conv1d", e.self_attention_model = "rotary", e.attention_bias = false, e.final_norm = true;
  auto& l = config.llm;
  l.vocab_size = 44, l.hidden_size = 192, l.num_hidden_layers = 3, l.num_attention_heads = l.num_key_value_heads = 4;
  l.intermediate_size = 512, l.dropout = l.attention_dropout = 0.1, l.embedding_std = 0.5;
  Plan plan{.ctc_classes = 45, .audio_tag = 43, .pieces = 38, .frames = {310, 250, 200, 140, 100}, .texts = {}, .options = {}};
  for (const auto n : plan.frames) plan.texts.push_back(n * 18 / 100);
  plan.options.llm_weight = 0.7, plan.options.ctc_weight = 0.3, plan.options.label_smoothing = 0.1;
  auto work = make_salm(context, config, plan, dtype);
  work->name = "salm-small", work->letter = "a";
  return work;
}

/// Sizes that the workload's description leaves open: 80 mels (as FastConformer-L), FFN 2,048, head tied to the embedding.
/// Dropout is that of NeMo's encoder, 0.1 in all its places, and none in the decoder. One utterance of each of
/// utterance_seconds; 3.5 tokens of text a second.
std::unique_ptr<Workload> make_salm_110m(Context& context, DType dtype) {
  SalmConfig config;
  config.encoder.features = 80;
  auto& l = config.llm;
  l.vocab_size = 32000, l.hidden_size = 768, l.num_hidden_layers = 12, l.num_attention_heads = 12, l.num_key_value_heads = 4;
  l.intermediate_size = 2048, l.tie_word_embeddings = true;
  Plan plan{.audio_tag = 31999, .pieces = 31000, .frames = {}, .texts = {}, .options = {}};
  for (const double s : utterance_seconds) {
    plan.frames.push_back(std::lround(100 * s));
    plan.texts.push_back(std::lround(3.5 * s));
  }
  auto work = make_salm(context, config, plan, dtype);
  work->name = "salm-110m", work->letter = "b";
  return work;
}

}  // namespace chorus::bench
