#include <chorus/models/salm/model.h>
#include <chorus/tensor/ops/ctc.h>
#include <chorus/tensor/ops/pointwise.h>
#include <chorus/tensor/ops/rows.h>

#include <cmath>

namespace chorus {
namespace {

std::vector<std::int64_t> lengths_of(const Rows& rows) {
  std::vector<std::int64_t> lengths;
  if (!rows.ids) return lengths;
  for (std::int64_t s = 0; s < rows.sequences(); ++s) lengths.push_back(rows.length(s));
  return lengths;
}

/// Replaces answer tokens by the mask or by other pieces; keyed by (sample, position in its sequence).
Tensor corrupted(const Splice& spliced, const TokenCorruption& corruption, const Pass& pass) {
  Tensor ids = spliced.token_ids.clone();
  const RandomKey key = random_key(pass.seed, pass.step, "token_corruption");
  const auto* index = spliced.rows.index.as<std::int32_t>();
  const auto* labels = spliced.labels.as<std::int32_t>();
  const auto* samples = spliced.rows.ids.as<std::int64_t>();
  for (std::size_t i = 0; i < spliced.text_rows.size(); ++i) {
    const std::int32_t row = spliced.text_rows[i], position = index[2 * row + 1];
    // An input is part of the answer when the row before it predicts it; the first token of an answer's context is never
    // spoiled.
    if (position == 0 || labels[row - 1] == ignored_label) continue;
    const auto sample = static_cast<std::uint64_t>(samples[index[2 * row]]);
    const auto draw = philox(key, {static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32),
                                   static_cast<std::uint32_t>(position), 0});
    if (draw[0] * 0x1p-32 >= corruption.p) continue;
    const bool mask = draw[1] < 0x80000000u || corruption.pieces.empty();
    ids.as<std::int32_t>()[i] = mask ? corruption.mask : corruption.pieces[draw[2] % corruption.pieces.size()];
  }
  return ids;
}

}  // namespace

std::int64_t feasible_ctc_targets(std::int64_t frames, const std::vector<std::int32_t>& labels, int subsampling_factor) {
  return subsampled_length(frames, subsampling_factor) >= ctc_frames_needed(labels) ? static_cast<std::int64_t>(labels.size())
                                                                                    : 0;
}

Salm::Salm(const SalmConfig& config, std::int64_t ctc_classes) : config(config) {
  const std::int64_t d = config.encoder.d_model;
  require(config.ctc_head || config.decoder, "salm", "neither ctc_head nor decoder: nothing to train");
  require(config.perception || (config.decoder && !config.ctc_head), "salm",
          "without perception there must be a decoder and no ctc_head");
  require(config.ctc_head || !(config.ctc_compressor || config.ctc_posteriors), "salm",
          "ctc_compressor and ctc_posteriors need ctc_head");
  require(config.modality_adapter == "identity" || config.modality_adapter == "conformer", "salm", "modality_adapter '",
          config.modality_adapter, "'; identity and conformer are there");
  if (!config.perception) {
    llm.emplace(config.llm);
    return;
  }
  encoder.emplace(config.encoder);
  if (config.ctc_head) ctc_head.emplace(d, ctc_classes);
  if (!config.decoder) return;
  if (config.modality_adapter == "conformer")
    for (int i = 0; i < config.adapter_layers; ++i) adapter.emplace_back(config.encoder);
  projection.emplace(d + (config.ctc_posteriors ? ctc_classes : 0), config.llm.hidden_size);
  if (config.projection_norm) projection_norm.emplace(config.llm.hidden_size, config.llm.rms_norm_eps);
  llm.emplace(config.llm);
}

Salm::Heard Salm::hear(const Tensor& features, const Rows& frames, const Pass& pass) const {
  if (!encoder) return {};
  Heard heard{(*encoder)(features, frames, pass), {}};
  if (ctc_head) heard.ctc_logits = (*ctc_head)(heard.encoded.x);
  return heard;
}

EncodedRows Salm::bridge(const Heard& heard, const Pass& pass) const {
  if (!encoder) return {};
  auto [x, rows] = heard.encoded;
  if (!adapter.empty()) {
    Tensor encoding;
    if (config.encoder.self_attention_model == "rel_pos")
      encoding = relative_encoding(x.context(), rows.longest(), x.cols(), x.dtype());
    x = adapter_in(x);
    for (const auto& layer : adapter) x = layer(x, encoding, rows, pass);
    x = adapter_out(cast(x, heard.encoded.x.dtype()));
  }
  if (config.ctc_posteriors)  // [T, d_model + classes]
    x = concat_cols(x, scale(softmax(heard.ctc_logits.detach()), std::sqrt(static_cast<double>(config.encoder.d_model))));
  if (config.ctc_compressor) {
    const CtcRuns runs = ctc_runs(heard.ctc_logits.detach(), rows);
    x = gather_rows(segment_mean(x, runs.offsets), runs.kept);
    rows = with_lengths(rows, runs.kept_per_sequence);
  }
  x = (*projection)(x);  // [A, hidden]
  return {projection_norm ? (*projection_norm)(x) : x, rows};
}

Tensor Salm::embed(const Splice& spliced, const Tensor& audio, const Tensor& token_ids) const {
  const Tensor text = llm->embed(token_ids);
  return audio ? gather_rows(concat_rows(cast(text, audio.dtype()), audio), spliced.index)
               : text;  // text alone lies in order already
}

SalmLoss Salm::loss(const SalmBatch& batch, const SalmLossOptions& options, const Pass& pass) const {
  SalmLoss out;
  const Heard heard = hear(batch.features, batch.frames, pass);
  const auto add_term = [&out](const Tensor& term, double weight) {
    const Tensor weighted = scale(term, weight);
    out.total = out.total ? add(out.total, weighted) : weighted;
  };
  if (options.ctc_weight > 0 && options.counts.ctc_targets > 0) {
    require(ctc_head.has_value(), "salm", "a CTC loss without ctc_head");
    std::vector<std::int32_t> labels, offsets{0};
    for (const auto& t : batch.transcripts) {
      labels.insert(labels.end(), t.begin(), t.end());
      offsets.push_back(static_cast<std::int32_t>(labels.size()));
    }
    Context& context = batch.features.context();
    const Tensor ctc =
        ctc_loss(heard.ctc_logits, heard.encoded.rows, Tensor::of(context, {static_cast<std::int64_t>(labels.size())}, labels),
                 Tensor::of(context, {static_cast<std::int64_t>(offsets.size())}, offsets),
                 1.0 / static_cast<double>(options.counts.ctc_targets));
    out.ctc = ctc.item();
    add_term(ctc, options.ctc_weight);
  }
  if (options.llm_weight > 0 && options.counts.labels > 0) {
    require(llm.has_value(), "salm", "a text loss without a decoder");
    const EncodedRows audio = bridge(heard, pass);
    const Splice spliced =
        splice(batch.features.context(), batch.conversations, lengths_of(audio.rows),
               {.audio_tag = batch.audio_tag, .restart_text_positions = config.restart_text_positions, .targets = true});
    const bool spoil = pass.training && options.corruption.p > 0;
    const Tensor embedded = embed(spliced, audio.x, spoil ? corrupted(spliced, options.corruption, pass) : spliced.token_ids);
    const Tensor states = (*llm)(embedded, spliced.rows, pass);
    const Tensor ce =
        llm->loss(states, spliced.labels,
                  {.scale = 1.0 / static_cast<double>(options.counts.labels), .label_smoothing = options.label_smoothing});
    out.llm = ce.item();
    add_term(ce, options.llm_weight);
  }
  return out;
}

std::vector<std::vector<std::int32_t>> Salm::generate(const Heard& heard, const SalmBatch& batch,
                                                      const std::vector<std::int64_t>& limits, std::int32_t eos,
                                                      std::vector<double>* mean_log_p) const {
  require(llm.has_value(), "generate", "this model has no decoder");
  require(limits.size() == batch.conversations.size(), "generate", limits.size(), " limits for ", batch.conversations.size(),
          " conversations");
  Context& context = batch.features.context();
  NoGrad quiet(context);
  const EncodedRows audio = bridge(heard, Pass{});
  const Splice spliced =
      splice(context, batch.conversations, lengths_of(audio.rows),
             {.audio_tag = batch.audio_tag, .restart_text_positions = config.restart_text_positions, .targets = false});
  std::vector<std::vector<std::int32_t>> answers(limits.size());
  if (mean_log_p) mean_log_p->assign(limits.size(), 0);
  if (limits.empty()) return answers;
  const std::int64_t longest = *std::max_element(limits.begin(), limits.end());
  LlmCache cache;
  const Tensor states =
      llm->prefill(embed(spliced, audio.x, spliced.token_ids), spliced.rows, spliced.rows.longest() + longest, cache);
  cache.positions = spliced.next_positions;  // of text, also where a prompt ends in audio with positions of its own
  std::vector<std::int32_t> last;
  for (std::int64_t b = 0; b < spliced.rows.sequences(); ++b) {
    require(spliced.rows.length(b) > 0, "generate", "conversation ", b, " is empty");
    last.push_back(static_cast<std::int32_t>(spliced.rows.begin(b + 1) - 1));
  }
  const auto batch_size = static_cast<std::int64_t>(last.size());
  Tensor state = gather_rows(states, Tensor::of(context, {batch_size}, last));  // [B, hidden]
  std::vector<bool> done;
  for (const auto limit : limits) done.push_back(limit <= 0);
  for (std::int64_t step = 0; step < longest; ++step) {
    const auto logits = llm->logits(state).to_doubles();
    const auto vocabulary = static_cast<std::ptrdiff_t>(llm->config.vocab_size);
    std::vector<std::int32_t> next;
    bool all_done = true;
    for (std::size_t b = 0; b < limits.size(); ++b) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(b) * vocabulary;
      const auto best = static_cast<std::int32_t>(std::max_element(row, row + vocabulary) - row);
      next.push_back(best);
      if (done[b]) continue;
      if (best != eos) answers[b].push_back(best);
      if (mean_log_p) {
        const auto chosen = static_cast<double>(answers[b].size() + (best == eos));
        double sum = 0;  // of the probabilities over that of the best
        for (auto it = row; it != row + vocabulary; ++it) sum += std::exp(*it - row[best]);
        (*mean_log_p)[b] += (-std::log(sum) - (*mean_log_p)[b]) / chosen;
      }
      done[b] = best == eos || static_cast<std::int64_t>(answers[b].size()) >= limits[b];
      all_done = all_done && done[b];
    }
    if (all_done) break;
    state = llm->decode(llm->embed(Tensor::of(context, {batch_size}, next)), cache);
  }
  return answers;
}

}  // namespace chorus
