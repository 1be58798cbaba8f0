#include "models.h"

#include <chorus/core/rng.h>
#include <chorus/tensor/ops/pointwise.h>

#include <algorithm>

namespace chorus::testing {
namespace {

constexpr int mels = 6, vocabulary = 23, classes = 11, audio_tag = 22;
constexpr std::int64_t text_lengths[samples] = {4, 2, 7, 3, 6};
constexpr std::int64_t frame_lengths[samples] = {37, 9, 61, 24, 18};

SalmConfig config_of(const ParityVariant& v) {
  SalmConfig c;
  c.perception = v.model != "decoder";
  c.decoder = v.model != "ctc";
  c.ctc_head = v.model == "ctc" || v.model == "salm";
  c.projection_norm = v.model == "salm";
  if (v.model == "salm") c.modality_adapter = "conformer", c.ctc_posteriors = true;
  c.encoder.features = mels;
  c.encoder.d_model = 24;
  c.encoder.layers = 2;
  c.encoder.heads = 12;
  c.encoder.ff_expansion_factor = 2;
  c.encoder.conv_kernel_size = 5;
  c.encoder.subsampling_factor = 4;
  c.encoder.subsampling_conv_channels = 5;
  c.encoder.self_attention_model = v.rotary ? "rotary" : "rel_pos";
  c.encoder.conv_norm = v.batch_norm ? "batch_norm" : "layer_norm";
  c.encoder.batch_norm_mode = "step";
  c.encoder.final_norm = true;
  c.encoder.xscaling = true;
  const double p = v.dropout ? 0.2 : 0;
  c.encoder.dropout = c.encoder.dropout_pre_encoder = c.encoder.dropout_att = p;
  c.llm.vocab_size = vocabulary;
  c.llm.hidden_size = 18;
  c.llm.num_hidden_layers = 2;
  c.llm.num_attention_heads = v.heads;
  c.llm.num_key_value_heads = v.kv_heads;
  c.llm.head_dim = 2;
  c.llm.intermediate_size = 13;
  c.llm.tie_word_embeddings = v.tied;
  c.llm.embedding_std = 0.5;
  c.llm.dropout = c.llm.attention_dropout = p;
  return c;
}

/// One sample by its number alone, whoever asks.
struct Material {
  std::vector<double> features;
  std::vector<std::int32_t> text;
};
Material material(int sample) {
  RandomStream stream(random_key(77, "sample " + std::to_string(sample)));
  Material m;
  for (std::int64_t i = 0; i < frame_lengths[sample] * mels; ++i) m.features.push_back(stream.normal());
  for (std::int64_t i = 0; i < text_lengths[sample]; ++i)
    m.text.push_back(static_cast<std::int32_t>(stream.below(classes - 1)));
  return m;
}

bool among(const std::vector<int>& list, int sample) { return std::find(list.begin(), list.end(), sample) != list.end(); }

SalmBatch batch_of(const ParityVariant& v, const SalmConfig& config, Context& context, std::span<const int> chosen,
                   DType dtype) {
  SalmBatch batch;
  batch.audio_tag = audio_tag;
  std::vector<double> features;
  std::vector<std::int64_t> lengths, ids;
  for (const int s : chosen) {
    const Material m = material(s);
    const bool hears = config.perception && !among(v.without_audio, s);
    if (hears) {
      features.insert(features.end(), m.features.begin(), m.features.end());
      lengths.push_back(frame_lengths[s]);
      ids.push_back(s);
      batch.transcripts.push_back(among(v.without_labels, s) ? std::vector<std::int32_t>{} : m.text);
    }
    if (!config.decoder) continue;
    Conversation talk{.id = s, .tokens = {20}, .answer = {0}};
    if (hears) talk.tokens.push_back(audio_tag), talk.answer.push_back(0);
    for (const auto t : m.text) talk.tokens.push_back(t), talk.answer.push_back(among(v.without_labels, s) ? 0 : 1);
    batch.conversations.push_back(std::move(talk));
  }
  const auto rows = static_cast<std::int64_t>(features.size()) / mels;
  Tensor wide = Tensor::of(context, {rows, config.perception ? mels : 0}, features);
  batch.features = dtype == DType::f64 ? wide : cast(wide, dtype);
  batch.frames = make_rows(context, lengths, ids);
  return batch;
}

/// Counts of the whole batch, whoever has which part.
LossCounts counts_of(const ParityVariant& v, const SalmConfig& config) {
  LossCounts counts;
  for (int s = 0; s < samples; ++s) {
    if (among(v.without_labels, s)) continue;
    const Material m = material(s);
    counts.labels += config.decoder ? text_lengths[s] : 0;
    if (config.ctc_head && !among(v.without_audio, s)) counts.ctc_targets += feasible_ctc_targets(frame_lengths[s], m.text, 4);
  }
  return counts;
}

double decoder_parameters(const SalmConfig& config) {
  Salm declared(config, classes);
  double n = 0;
  for_each_param(declared, [&](const std::string&, const Param& param) { n += static_cast<double>(param.global.numel()); });
  return n;
}

/// In f64, when nothing is frozen and all samples lie on each data-parallel rank or none of them does. Activations: Korthikanti
/// et al. (2022), with the loss's and the embedding's; gradients: a ring's all-reduce.
std::map<std::string, double> decoder_bytes(const LlmConfig& config, const MeshShape& mesh, bool sequence_parallel,
                                            double parameters) {
  constexpr double element = 8, statistics = 4 * 8;
  double rows = 0;
  for (const auto n : text_lengths) rows += static_cast<double>(n);
  rows /= mesh.dp();  // on average
  const double t = mesh.tp, d = mesh.dp(), layers = config.num_hidden_layers, hidden = config.hidden_size;
  const double activation = rows * hidden * element, ring = (t - 1) / t;
  std::map<std::string, double> bytes;
  if (t > 1) {
    const double loss = t * rows * statistics;  // of each row that has a label
    if (!sequence_parallel) {
      // Forward: attention and feed-forward of each layer, the embedding. Backward: their inputs, and the loss's.
      bytes["tp all_reduce"] = 2 * ring * (4 * layers + 2) * activation;
      bytes["tp all_gather"] = ring * loss;
    } else {
      // Forward two a layer and the loss's; backward two a layer, two a layer once more for the weights, the decoder's input.
      bytes["tp all_gather"] = ring * ((6 * layers + 2) * activation + loss);
      bytes["tp reduce_scatter"] = ring * (4 * layers + 1) * activation;
      // The embedding's output, and the gradients of the norms.
      bytes["tp all_reduce"] = 2 * ring * (activation + (2 * layers + 1) * hidden * element);
    }
  }
  if (d > 1 && t == 1) bytes["dp_cp all_reduce"] = 2 * (d - 1) / d * parameters * element;
  return bytes;
}

}  // namespace

ParityModel<Salm> parity_model(const ParityVariant& v) {
  const SalmConfig config = config_of(v);
  ParityModel<Salm> parity;
  parity.name = v.model;
  parity.samples = samples;
  parity.freeze.freeze = v.freeze;
  if (v.model == "perception") parity.freeze.freeze.push_back("llm\\.");  // what it is trained through
  parity.make = [config] { return std::make_unique<Salm>(config, classes); };
  parity.plan = [config, sp = v.sequence_parallel](const Mesh& mesh) { return salm_plan(config, mesh, sp); };
  const auto dtype_of_model = [](const Salm& model) {
    return model.llm ? model.llm->norm.weight.value.dtype() : model.ctc_head->weight.value.dtype();
  };
  parity.walk = [dtype_of_model](Salm& model, Context& context) {
    return loss_without_rows(model, context, dtype_of_model(model));
  };
  const LossCounts counts = counts_of(v, config);
  parity.loss = [v, config, counts, dtype_of_model](Salm& model, Context& context, std::span<const int> chosen,
                                                    const Pass& pass) {
    if (v.empty_loss && chosen.empty()) return Tensor();
    const SalmBatch batch = batch_of(v, config, context, chosen, dtype_of_model(model));
    const SalmLossOptions options{.counts = counts,
                                  .llm_weight = config.decoder ? 1.0 : 0.0,
                                  .ctc_weight = config.ctc_head ? 0.3 : 0.0,
                                  .label_smoothing = 0.1,
                                  .corruption = {}};
    return model.loss(batch, options, pass).total;
  };
  if (v.model == "decoder") {
    parity.predicted_bytes = [config, sp = v.sequence_parallel, parameters = decoder_parameters(config)](
                                 const MeshShape& mesh) { return decoder_bytes(config.llm, mesh, sp, parameters); };
  }
  return parity;
}

}  // namespace chorus::testing
