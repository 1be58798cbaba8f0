#include <chorus/apps/evaluator.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

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
  void finish(Evaluation& out, Group* group) {
    flush();
    if (group) {
      double sums[] = {llm_, ctc_, labels_, targets_};
      group->all_reduce(std::span<double>(sums));
      llm_ = sums[0], ctc_ = sums[1], labels_ = sums[2], targets_ = sums[3];
    }
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

/// Which entries are this rank's.
struct Share {
  std::size_t rank = 0, size = 1;
  bool has(std::size_t entry) const { return entry % size == rank; }
};

/// Opens what all `peers` can open; else an error on each of them, or they would go on to other calls.
AudioStream open_alike(const std::function<AudioStream()>& open, Group& peers) {
  std::optional<AudioStream> stream;
  std::string problem;
  try {
    stream.emplace(open());
  } catch (const Error& error) {
    problem = error.what();
  }
  std::int64_t failed = stream ? 0 : 1;
  peers.all_reduce(std::span<std::int64_t>(&failed, 1));
  if (!stream) throw Error(problem);
  require(failed == 0, "evaluate", failed, " of ", peers.size(), " ranks that share the model can't open it");
  return std::move(*stream);
}

/// Transcribes this rank's share into out.entries.
void hear(Evaluation& out, const Transcriber& transcriber, std::span<const TranscriptSource> sources,
          const TranscriptionOptions& options, const std::function<void(std::size_t, const EvaluatedEntry&)>& heard,
          const Share& share, Group* peers) {
  std::vector<TranscriptionJob> jobs;
  std::vector<std::size_t> entry_of;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!share.has(i)) continue;
    jobs.push_back(job_of(sources[i], transcriber.config().features.sample_rate));
    if (peers && peers->size() > 1) jobs.back().open = [open = jobs.back().open, peers] { return open_alike(open, *peers); };
    entry_of.push_back(i);
  }
  TranscriptionHooks hooks;
  hooks.segment = [&](std::size_t job, const Segment& segment) {
    EvaluatedEntry& entry = out.entries[entry_of[job]];
    append(entry.text, segment.transcript.text);
    append(entry.ctc, segment.transcript.ctc);
    ++entry.segments;
  };
  hooks.end = [&](std::size_t job, double seconds, const std::string& problem) {
    const std::size_t entry = entry_of[job];
    out.entries[entry].seconds = seconds;
    out.entries[entry].problem = problem;
    if (heard) heard(entry, out.entries[entry]);
  };
  out.totals = transcribe_all(transcriber, jobs, options, hooks);
}

/// Every rank's texts for all ranks, as JSON, and the sums of what they did.
void exchange(Evaluation& out, const Share& share, Group& group) {
  Json mine = Json::array();
  for (std::size_t i = 0; i < out.entries.size(); ++i) {
    const EvaluatedEntry& e = out.entries[i];
    if (share.has(i)) mine.push_back({i, e.text, e.ctc, e.seconds, e.segments, e.problem});
  }
  const std::vector<std::uint8_t> bytes = Json::to_cbor(mine);
  std::vector<std::int64_t> counts(share.size), ones(share.size, 1);
  const auto own = static_cast<std::int64_t>(bytes.size());
  group.all_gather(std::span<const std::int64_t>(&own, 1), std::span<std::int64_t>(counts), ones);
  std::int64_t total = 0;
  for (const auto n : counts) total += n;
  std::vector<std::uint8_t> all(static_cast<std::size_t>(total));
  group.all_gather(std::span<const std::uint8_t>(bytes), std::span<std::uint8_t>(all), counts);
  auto at = all.begin();
  for (const auto n : counts) {
    for (const auto& e : Json::from_cbor(at, at + n)) out.entries[e[0].get<std::size_t>()] = {e[1], e[2], e[3], e[4], e[5]};
    at += n;
  }
  double sound = out.totals.sound_seconds, longest = out.totals.seconds;
  group.all_reduce(std::span<double>(&sound, 1));
  group.all_reduce(std::span<double>(&longest, 1), Reduce::max);
  std::int64_t sums[] = {out.totals.recordings, out.totals.segments, out.totals.failed};
  group.all_reduce(std::span<std::int64_t>(sums));
  out.totals.sound_seconds = sound;
  out.totals.seconds = longest;
  out.totals.recordings = sums[0], out.totals.segments = sums[1], out.totals.failed = sums[2];
}

}  // namespace

double Evaluation::perplexity() const { return std::exp(llm_loss); }
double Evaluation::bits_per_byte() const {
  return llm_loss * static_cast<double>(labels) / static_cast<double>(text_bytes) / std::numbers::ln2;
}

Evaluation evaluate(const Transcriber& transcriber, std::span<const TranscriptSource> sources,
                    const TranscriptionOptions& options, const std::function<void(std::size_t, const EvaluatedEntry&)>& heard,
                    Group* group, Group* peers) {
  const Share share = group ? Share{static_cast<std::size_t>(group->rank()), static_cast<std::size_t>(group->size())} : Share{};
  Evaluation out;
  out.listens = transcriber.listens();
  out.entries.resize(sources.size());
  if (out.listens) hear(out, transcriber, sources, options, heard, share, peers);
  if (group) exchange(out, share, *group);
  out.failed = out.totals.failed;
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
    if (share.has(i)) losses.add(transcriber.recording(entry));
  }
  losses.finish(out, group);
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
