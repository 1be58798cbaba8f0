// A small SALM in f64 and synthetic batches for it, for tests of properties.
#pragma once
#include <chorus/core/rng.h>
#include <chorus/models/salm/model.h>
#include <chorus/nn/materialize.h>

#include <string>

namespace chorus::testing {

/// The tag lies outside the embedding, as in models whose vocabulary was not resized for it.
inline constexpr std::int32_t vocabulary = 13, audio_tag = vocabulary, bos = 1, eos = 2;

/// "nemo" is the plain form; "small" has everything that the small recipe switches on.
inline SalmConfig small_config(const std::string& form) {
  SalmConfig config;
  config.encoder.features = 10;
  config.encoder.d_model = 24;
  config.encoder.layers = 2;
  config.encoder.heads = 3;
  config.encoder.subsampling_conv_channels = 6;
  config.encoder.conv_kernel_size = 5;
  config.llm = {
      .vocab_size = vocabulary, .hidden_size = 20, .num_hidden_layers = 2, .num_attention_heads = 5, .num_key_value_heads = 5};
  config.llm.head_dim = 4;
  config.llm.intermediate_size = 18;
  config.llm.embedding_std = 0.5;
  config.ctc_head = true;
  if (form == "small") {
    config.encoder.subsampling = "conv1d";
    config.encoder.subsampling_factor = 4;
    config.encoder.self_attention_model = "rotary";
    config.encoder.heads = 4;
    config.encoder.final_norm = true;
    config.ctc_compressor = config.ctc_posteriors = config.projection_norm = config.restart_text_positions = true;
    config.llm.num_key_value_heads = 1;
    config.llm.dropout = 0.1;
    config.llm.attention_dropout = 0.1;
  }
  return config;
}

struct Sample {
  std::int64_t id, frames;
  std::vector<std::int32_t> text;
};

inline std::vector<Sample> some_samples() {
  return {{101, 61, {3, 4, 5, 5}}, {7, 17, {6}}, {55, 40, {9, 8, 7, 3, 3, 4}}, {1000000007, 96, {5, 4, 3}}, {3, 33, {10, 11}}};
}

inline Tensor features_of(Context& context, const std::vector<Sample>& samples, std::int64_t mels, DType dtype) {
  std::vector<double> values;
  for (const auto& s : samples) {
    std::vector<double> own(static_cast<std::size_t>(s.frames * mels));
    fill_normal(random_key(static_cast<std::uint64_t>(s.id), "features"), 0, own, 0, 1);
    values.insert(values.end(), own.begin(), own.end());
  }
  const Tensor wide = Tensor::of(context, {static_cast<std::int64_t>(values.size()) / mels, mels}, values);
  if (dtype == DType::f64) return wide;
  Tensor out = Tensor::empty(context, wide.shape(), dtype);
  dispatch<float, bf16>(dtype, "features", [&]<class T>() {
    std::transform(values.begin(), values.end(), out.as<T>(), [](double x) { return static_cast<T>(x); });
  });
  return out;
}

inline SalmBatch batch_of(Context& context, const std::vector<Sample>& samples, std::int64_t mels, DType dtype = DType::f64) {
  SalmBatch batch;
  batch.audio_tag = audio_tag;
  batch.features = features_of(context, samples, mels, dtype);
  std::vector<std::int64_t> lengths, ids;
  for (const auto& s : samples) {
    lengths.push_back(s.frames);
    ids.push_back(s.id);
    batch.transcripts.push_back(s.text);
    Conversation c{s.id, {audio_tag, bos}, {0, 0}};
    c.tokens.insert(c.tokens.end(), s.text.begin(), s.text.end());
    c.tokens.push_back(eos);
    c.answer.resize(c.tokens.size(), 1);
    batch.conversations.push_back(std::move(c));
  }
  batch.frames = make_rows(context, lengths, ids);
  return batch;
}

inline LossCounts counts_of(const std::vector<Sample>& samples, int factor) {
  LossCounts counts;
  for (const auto& s : samples) {
    counts.labels += static_cast<std::int64_t>(s.text.size()) + 1;
    counts.ctc_targets += feasible_ctc_targets(s.frames, s.text, factor);
  }
  return counts;
}

inline SalmLossOptions loss_options(const LossCounts& counts) {
  return {.counts = counts,
          .llm_weight = 0.7,
          .ctc_weight = 0.3,
          .label_smoothing = 0.1,
          .corruption = {.p = 0.3, .mask = 0, .pieces = {3, 4, 5}}};
}

}  // namespace chorus::testing
