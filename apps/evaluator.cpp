#include <chorus/apps/evaluator.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

namespace chorus {
namespace {

using Json = nlohmann::ordered_json;

/// Sums up the losses of recordings that are heard whole, a batch at a time.
class LossSum {
 public:
  explicit LossSum(const Transcriber& transcriber) : transcriber_(transcriber) {}
  void add(Recording recording) {
    seconds_ += recording.seconds;
    waiting_.push_back(std::move(recording));
    if (seconds_ >= 60) flush();
  }
  void finish(Evaluation& out) {
    flush();
    out.labels = static_cast<std::int64_t>(labels_);
    if (labels_ > 0) out.llm_loss = llm_ / labels_;
    if (targets_ > 0) out.ctc_loss = ctc_ / targets_;
  }

 private:
  void flush() {
    if (waiting_.empty()) return;
    const Losses part = transcriber_.losses(waiting_);
    const auto labels = static_cast<double>(part.counts.labels), targets = static_cast<double>(part.counts.ctc_targets);
    llm_ += part.llm * labels;
    ctc_ += part.ctc * targets;
    labels_ += labels;
    targets_ += targets;
    waiting_.clear();
    seconds_ = 0;
  }
  const Transcriber& transcriber_;
  std::vector<Recording> waiting_;
  double seconds_ = 0, llm_ = 0, ctc_ = 0, labels_ = 0, targets_ = 0;
};

void append(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += ' ';
  text += more;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }
Json score_json(const TextScore& score) {
  return {{"cer", number(score.characters.value())},
          {"wer", number(score.words.value())},
          {"characters", score.characters.reference},
          {"words", score.words.reference}};
}

/// Transcribes all of them into out.entries.
void hear(Evaluation& out, const Transcriber& transcriber, std::span<const TranscriptSource> sources,
          const TranscriptionOptions& options, const std::function<void(std::size_t, const EvaluatedEntry&)>& heard) {
  std::vector<TranscriptionJob> jobs;
  for (const auto& source : sources) jobs.push_back(job_of(source, transcriber.config().features.sample_rate));
  TranscriptionHooks hooks;
  hooks.segment = [&](std::size_t job, const Segment& segment) {
    EvaluatedEntry& entry = out.entries[job];
    append(entry.text, segment.transcript.text);
    append(entry.ctc, segment.transcript.ctc);
    ++entry.segments;
  };
  hooks.end = [&](std::size_t job, double seconds, const std::string& problem) {
    out.entries[job].seconds = seconds;
    out.entries[job].problem = problem;
    if (heard) heard(job, out.entries[job]);
  };
  out.totals = transcribe_all(transcriber, jobs, options, hooks);
  out.failed = out.totals.failed;
}

}  // namespace

double Evaluation::perplexity() const { return std::exp(llm_loss); }
double Evaluation::bits_per_byte() const {
  return llm_loss * static_cast<double>(labels) / static_cast<double>(text_bytes) / std::numbers::ln2;
}

Evaluation evaluate(const Transcriber& transcriber, std::span<const TranscriptSource> sources,
                    const TranscriptionOptions& options, const std::function<void(std::size_t, const EvaluatedEntry&)>& heard) {
  Evaluation out;
  out.listens = transcriber.listens();
  out.entries.resize(sources.size());
  if (out.listens) hear(out, transcriber, sources, options, heard);
  LossSum losses(transcriber);
  bool languages = false;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const ManifestEntry& entry = sources[i].entry;
    const EvaluatedEntry& result = out.entries[i];
    languages = languages || !entry.lang.empty();
    if (!result.problem.empty()) continue;
    if (entry.text.empty()) {
      ++out.without_reference;
      continue;
    }
    ++out.scored;
    LanguageScore& language = out.languages[entry.lang];
    ++language.recordings;
    if (out.listens && transcriber.has_decoder()) {
      out.llm.add(entry.text, result.text);
      language.llm.add(entry.text, result.text);
    }
    if (transcriber.has_ctc()) {
      out.ctc.add(entry.text, result.ctc);
      language.ctc.add(entry.text, result.ctc);
    }
    if (out.listens && result.segments != 1) continue;
    ++out.with_loss;
    out.text_bytes += static_cast<std::int64_t>(entry.text.size());
    losses.add(transcriber.recording(entry));
  }
  losses.finish(out);
  if (!languages) out.languages.clear();
  return out;
}

std::string evaluation_json(const Evaluation& e, const std::string& manifest, std::int64_t step) {
  Json json{{"manifest", manifest},
            {"checkpoint_step", step},
            {"recordings", e.entries.size()},
            {"scored", e.scored},
            {"without_reference", e.without_reference},
            {"failed", e.failed},
            {"with_loss", e.with_loss},
            {"segments", e.totals.segments},
            {"sound_seconds", e.totals.sound_seconds},
            {"seconds", e.totals.seconds}};
  const auto add = [](Json& to, const TextScore& llm, const TextScore& ctc) {
    if (llm.characters.reference > 0) to["decoder"] = score_json(llm);
    if (ctc.characters.reference > 0) to["ctc"] = score_json(ctc);
  };
  add(json, e.llm, e.ctc);
  if (e.with_loss > 0 && json.contains("decoder")) json["decoder"]["loss"] = number(e.llm_loss);
  if (e.with_loss > 0 && json.contains("ctc")) json["ctc"]["loss"] = number(e.ctc_loss);
  for (const auto& [name, score] : e.languages) {
    Json& language = json["languages"][name];
    language["recordings"] = score.recordings;
    add(language, score.llm, score.ctc);
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace chorus
