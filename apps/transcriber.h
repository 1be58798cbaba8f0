// A trained model at work: sound in, text out.
#pragma once
#include <chorus/apps/run_folder.h>
#include <chorus/apps/salm_builder.h>
#include <chorus/io/metrics.h>
#include <chorus/tensor/ops/ctc_align.h>

#include <functional>

namespace chorus {

struct Recording {
  std::string name;
  std::vector<float> features;  ///< [frames, mels], normalised
  double seconds = 0;
  std::string text;  ///< the reference, where there is one
};

/// A word and when it is heard, in seconds from the recording's beginning.
struct TimedWord {
  std::string text;
  double start = 0, end = 0;
};

struct Transcript {
  std::string text{};                           ///< by the decoder, greedily; empty without one
  std::string ctc{};                            ///< by the CTC head, greedily; empty without one
  double text_log_p = 0, ctc_log_p = 0;         ///< mean log-probability of the decoder's tokens, of the CTC head's rows
  std::vector<TimedWord> words{}, ctc_words{};  ///< of `text` and `ctc`, if asked for and if the CTC head can align them
};

struct TranscriptOptions {
  bool word_times = false;              ///< by the CTC head, which must be there
  std::size_t frames_per_batch = 6000;  ///< about a minute of sound at once
};

/// What a manifest calls a recording: its id, or its file's name without folder and ending.
std::string recording_name(const ManifestEntry& entry);

/// Recordings of a corpus that can be used, and why others can't be.
struct Corpus {
  std::vector<Recording> recordings;
  std::vector<std::string> dropped;  ///< one line each
};

/// Means over the counted labels, without smoothing.
struct Losses {
  double llm = 0, ctc = 0;
  LossCounts counts;
};

/// Uses a model that lives elsewhere; evaluation mode throughout.
class Transcriber {
 public:
  Transcriber(Context& context, const Salm& model, const RunConfig& config, const RunInputs& inputs);

  /// Features of mono samples at features.sample_rate.
  std::vector<float> features(std::span<const float> samples) const;
  /// Without perception a recording has no sound: its text alone counts.
  Recording recording(const ManifestEntry& entry) const;
  Corpus corpus(std::span<const ManifestEntry> entries) const;

  const RunConfig& config() const { return config_; }
  bool listens() const { return model_.encoder.has_value(); }
  bool has_decoder() const { return model_.llm.has_value(); }
  bool has_ctc() const { return model_.ctc_head.has_value(); }

  std::vector<Transcript> transcribe(std::span<const Recording> recordings, const TranscriptOptions& options = {}) const;
  /// Of recordings with references, each heard in one piece.
  Losses losses(std::span<const Recording> recordings) const;
  /// Transcripts of the same recordings when each hears another one's sound (the `shift`-th following it), or silence as long
  /// as its own: a model that listens must do badly.
  TextScore control_other(std::span<const Recording> recordings, std::size_t shift = 7) const;
  TextScore control_silence(std::span<const Recording> recordings) const;

 private:
  TextScore control(std::span<const Recording> recordings, std::span<const Recording> heard) const;
  std::vector<TimedWord> timed_words(std::span<const std::int32_t> tokens, std::span<const CtcSpan> spans,
                                     double seconds) const;
  void for_each_batch(
      std::span<const Recording> recordings, std::size_t frames_per_batch,
      const std::function<void(std::span<const std::size_t> indices, std::span<const SpeechSample> samples)>& use) const;
  Context& context_;
  const Salm& model_;
  RunConfig config_;
  const RunInputs& inputs_;
  Prompt prompt_;
  Frontend frontend_;
};

/// The checkpointed model of a run folder, ready to transcribe.
struct LoadedRun {
  std::unique_ptr<Context> context;
  RunConfig config;
  std::unique_ptr<RunInputs> inputs;
  std::unique_ptr<BuiltSalm> built;
  std::unique_ptr<Transcriber> transcriber;  ///< refers to the others, which therefore don't move
  std::int64_t step = 0;
};
LoadedRun load_run(const std::filesystem::path& folder, const std::function<void(const std::string&)>& report);

}  // namespace chorus
