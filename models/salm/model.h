// SALM (Chen et al. 2024): a speech encoder, a projection, and a decoder-only language model that reads its output.
#pragma once
#include <chorus/models/conformer/model.h>
#include <chorus/models/llm/model.h>
#include <chorus/models/salm/config.h>
#include <chorus/models/salm/splice.h>

namespace chorus {

/// One microbatch: audios packed end to end, and conversations whose tags refer to them in order. Of text alone: features
/// [0, mels], no sequence of frames and no tags.
struct SalmBatch {
  Tensor features;                                     ///< [frames, mels] in the model's type
  Rows frames;                                         ///< one sequence per audio
  std::vector<std::vector<std::int32_t>> transcripts;  ///< CTC labels of each audio; empty when there is no CTC term
  std::vector<Conversation> conversations;
  std::int32_t audio_tag = -1;
};

/// How inputs are spoiled in training, so that the decoder must listen: each answer token is replaced with probability p by
/// the mask token or, half of the times, by one of `pieces`. Targets stay.
struct TokenCorruption {
  double p = 0;
  std::int32_t mask = -1;
  std::vector<std::int32_t> pieces;
};

/// Counts of the whole global batch: one normaliser per term, whatever the microbatch.
struct LossCounts {
  std::int64_t labels = 0;       ///< trained text tokens
  std::int64_t ctc_targets = 0;  ///< CTC labels of utterances that are long enough for theirs
};

struct SalmLossOptions {
  LossCounts counts;
  double llm_weight = 1, ctc_weight = 0, label_smoothing = 0;
  TokenCorruption corruption;
};

struct SalmLoss {
  Tensor total;             ///< llm_weight * CE / labels + ctc_weight * CTC / ctc_targets; empty when no term is active
  double llm = 0, ctc = 0;  ///< this microbatch's share of each mean
};

struct Salm {
  Salm() = default;
  /// `ctc_classes` counts the blank.
  Salm(const SalmConfig& config, std::int64_t ctc_classes);
  SalmConfig config;
  std::optional<Conformer> encoder;  ///< absent without perception, and with it the bridge
  std::optional<Linear> ctc_head;
  std::vector<ConformerLayer> adapter;
  Port adapter_in, adapter_out;
  std::optional<Linear> projection;
  std::optional<RmsNorm> projection_norm;
  std::optional<Llm> llm;

  struct Heard {
    EncodedRows encoded;  ///< [T, d_model]
    Tensor ctc_logits;    ///< [T, classes] if there is a CTC head
  };
  Heard hear(const Tensor& features, const Rows& frames, const Pass& pass) const;
  /// What the decoder reads of each audio: [A, hidden].
  EncodedRows bridge(const Heard& heard, const Pass& pass) const;
  SalmLoss loss(const SalmBatch& batch, const SalmLossOptions& options, const Pass& pass) const;
  /// Greedy continuation of each conversation (which must end where the answer starts), at most limits[i] tokens, up to and
  /// without `eos`. `heard` is hear(batch.features, batch.frames, Pass{}). `mean_log_p` receives for each the mean
  /// log-probability of what was chosen, `eos` among it; 0 where nothing was.
  std::vector<std::vector<std::int32_t>> generate(const Heard& heard, const SalmBatch& batch,
                                                  const std::vector<std::int64_t>& limits, std::int32_t eos,
                                                  std::vector<double>* mean_log_p = nullptr) const;

  template <class V>
  void fields(V&& v) {
    v("encoder", encoder);
    v("ctc_head", ctc_head);
    v("adapter", adapter);
    v("adapter_in", adapter_in);
    v("adapter_out", adapter_out);
    v("projection", projection);
    v("projection_norm", projection_norm);
    v("llm", llm);
  }

 private:
  Tensor embed(const Splice& spliced, const Tensor& audio, const Tensor& token_ids) const;
};

/// The CTC term's targets in this batch that count: labels of utterances with enough frames after subsampling.
std::int64_t feasible_ctc_targets(std::int64_t frames, const std::vector<std::int32_t>& labels, int subsampling_factor);

}  // namespace chorus
