// How well a model does on a manifest.
#pragma once
#include <chorus/apps/transcript_input.h>
#include <chorus/parallel/group/group.h>

#include <map>

namespace chorus {

struct LanguageScore {
  std::int64_t recordings = 0;
  TextScore llm, ctc;
};

/// What became of one entry: the texts of its segments, joined.
struct EvaluatedEntry {
  std::string text, ctc;
  double seconds = 0;
  std::int64_t segments = 0;
  std::string problem;  ///< why it could not be heard, or not to its end; such entries are not scored
};

struct Evaluation {
  bool listens = true;  ///< false for a decoder without perception: losses alone, every entry has an empty transcript
  std::vector<EvaluatedEntry> entries;
  TextScore llm, ctc;                              ///< without any reference for a part that the model lacks
  std::map<std::string, LanguageScore> languages;  ///< by the manifest's "lang"; empty if no entry has one
  double llm_loss = 0, ctc_loss = 0;               ///< means over the labels of `with_loss` entries, without smoothing
  std::int64_t labels = 0, text_bytes = 0;  ///< of those: what the llm_loss is a mean over, and the length of their texts
  /// Entries with a reference that were heard to their end; those heard in one piece, which alone have a loss (a text isn't cut
  /// where the sound is); those without a reference; those with a problem.
  std::int64_t scored = 0, with_loss = 0, without_reference = 0, failed = 0;
  TranscriptionTotals totals;

  double perplexity() const;     ///< of the decoder, per token
  double bits_per_byte() const;  ///< of the decoder, ends of texts included: independent of the tokenizer
};

/// Transcribes every entry, with reference or without, long ones in chunks, and scores those that can be scored. Bounded
/// memory: nothing but texts is kept. `heard` is told of each entry as its turn ends. With `group`, all of whose ranks call it
/// with the same sources, each hears its share, of which alone `heard` tells; all return the same (but for the totals' time,
/// which is the longest). `peers`, if given, are the ranks that hear the same share with other parts of the model: what one of
/// them can't open is a problem on all.
Evaluation evaluate(const Transcriber& transcriber, std::span<const TranscriptSource> sources,
                    const TranscriptionOptions& options,
                    const std::function<void(std::size_t entry, const EvaluatedEntry&)>& heard = {}, Group* group = nullptr,
                    Group* peers = nullptr);

/// The figures as a JSON object in one line.
std::string evaluation_json(const Evaluation& evaluation, const std::string& manifest, std::int64_t step);

}  // namespace chorus
