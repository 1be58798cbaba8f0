#include <chorus/apps/transcription.h>
#include <chorus/parallel/group/group.h>

#include <chrono>
#include <cmath>

namespace chorus {
namespace {

/// What is to be told, in order: chunks that wait for their batch, and ends of recordings.
struct Event {
  std::size_t job = 0;
  bool end = false;
  double start = 0, seconds = 0;  // of a chunk; of a recording `seconds` alone
  std::string problem{};
};

class Transcription {
 public:
  Transcription(const Transcriber& transcriber, const TranscriptionOptions& options, const TranscriptionHooks& hooks)
      : transcriber_(transcriber), options_(options), hooks_(hooks) {}

  void hear(std::size_t index, const TranscriptionJob& job) {
    Event end{index, true};
    const double rate = transcriber_.config().features.sample_rate;
    std::optional<AudioStream> stream;
    std::optional<ChunkReader> reader;
    while (true) {
      std::optional<Chunk> chunk;
      // Errors of the hooks are not the recording's.
      try {
        if (!stream) stream.emplace(job.open());
        if (!reader) reader.emplace(*stream, options_.chunks);
        chunk = reader->next();
      } catch (const Error& error) {
        end.problem = error.what();
      }
      if (!chunk) break;
      const double seconds = static_cast<double>(chunk->samples.size()) / rate;
      if (waiting_ + seconds > options_.batch_seconds) flush();
      end.seconds += seconds;
      add(index, static_cast<double>(chunk->begin) / rate, seconds, chunk->samples);
      if (waiting_ >= options_.batch_seconds) flush();
    }
    if (end.problem.empty()) end.problem = stream->broken();
    if (end.problem.empty() && reader->samples() == 0) end.problem = "has no samples";
    events_.push_back(std::move(end));
    if (recordings_.empty()) flush();  // nothing waits for a batch: what is to be told can be told
  }

  void flush() {
    const auto transcripts = hear_together();
    std::size_t next = 0;
    for (Event& event : events_) {
      if (event.end) {
        tell_end(event);
        continue;
      }
      const auto& heard = event.problem.empty() ? transcripts[next++] : nothing_;
      if (!heard) {
        if (problem_.empty()) problem_ = event.problem.empty() ? problems_[next - 1] : event.problem;
        continue;
      }
      Segment segment{event.start, event.start + event.seconds, *heard};
      for (auto* words : {&segment.transcript.words, &segment.transcript.ctc_words})
        for (TimedWord& word : *words) word.start += event.start, word.end += event.start;
      ++totals.segments;
      if (hooks_.segment) hooks_.segment(event.job, segment);
    }
    events_.clear();
    recordings_.clear();
    waiting_ = 0;
  }

  TranscriptionTotals totals;

 private:
  void add(std::size_t job, double start, double seconds, std::span<const float> samples) {
    Event event{job, false, start, seconds};
    try {
      Recording recording{"", transcriber_.features(samples), seconds, ""};
      require(!recording.features.empty(), "transcribe", samples.size(), " samples (", seconds, " s) give no feature frame");
      recordings_.push_back(std::move(recording));
      waiting_ += seconds;
    } catch (const Error& error) {
      event.problem = error.what();
    }
    events_.push_back(std::move(event));
  }

  /// One transcript per waiting chunk; none, and the reason in `problems_`, for those that can't be heard.
  std::vector<std::optional<Transcript>> hear_together() {
    const TranscriptOptions options{options_.word_times, SIZE_MAX};
    problems_.assign(recordings_.size(), "");
    try {
      const auto all = transcriber_.transcribe(recordings_, options);
      return {all.begin(), all.end()};
    } catch (const GroupEnded&) {
      throw;
    } catch (const Error&) {
      // One by one, the others are saved.
    }
    std::vector<std::optional<Transcript>> out(recordings_.size());
    for (std::size_t i = 0; i < recordings_.size(); ++i) {
      try {
        out[i] = transcriber_.transcribe(std::span(&recordings_[i], 1), options)[0];
      } catch (const GroupEnded&) {
        throw;
      } catch (const Error& error) {
        problems_[i] = error.what();
      }
    }
    return out;
  }

  void tell_end(const Event& event) {
    const std::string problem = problem_.empty() ? event.problem : problem_;
    problem_.clear();
    ++totals.recordings;
    totals.failed += !problem.empty();
    totals.sound_seconds += event.seconds;
    if (hooks_.end) hooks_.end(event.job, event.seconds, problem);
  }

  const Transcriber& transcriber_;
  const TranscriptionOptions& options_;
  const TranscriptionHooks& hooks_;
  std::vector<Event> events_;
  std::vector<Recording> recordings_;  // of the chunks among the events that have features
  std::vector<std::string> problems_;
  const std::optional<Transcript> nothing_;
  std::string problem_;  // the first one of the recording whose segments are being told
  double waiting_ = 0;   // seconds
};

}  // namespace

ChunkOptions chunk_options(const CutOptions& cut, const RunConfig& config) {
  const int rate = config.features.sample_rate;
  const double chunk = cut.chunk.value_or(config.model.encoder_chunk_size_seconds);
  for (const auto& [what, value] : {std::pair{"chunk", chunk},
                                    {"shortest tail", cut.shortest},
                                    {"quiet stretch", cut.quiet},
                                    {"longest piece", cut.longest}})
    require(value >= 0 && std::isfinite(value), "chunk_options", "a ", what, " of ", value, " s; expected 0 or more");
  const auto samples = [&](double seconds) { return static_cast<std::int64_t>(std::llround(seconds * rate)); };
  // Two frames: with one, a chunk has no deviation to be normalised by.
  const std::int64_t frames = samples(config.features.window_seconds) + 2 * samples(config.features.hop_seconds);
  ChunkOptions out{samples(chunk), std::max(samples(cut.shortest), frames), samples(cut.quiet), samples(cut.longest)};
  require(chunk == 0 || (out.shortest < out.chunk && out.quiet + out.shortest <= out.chunk), "chunk_options", "chunks of ",
          chunk, " s (encoder_chunk_size_seconds) must be longer than the shortest tail, ",
          static_cast<double>(out.shortest) / rate, " s, and hold it beside the stretch in which to cut, ", cut.quiet, " s");
  return out;
}

TranscriptionTotals transcribe_all(const Transcriber& transcriber, std::span<const TranscriptionJob> jobs,
                                   const TranscriptionOptions& options, const TranscriptionHooks& hooks) {
  require(options.batch_seconds >= 0, "transcribe_all", "batches of ", options.batch_seconds, " s; expected 0 or more");
  const auto start = std::chrono::steady_clock::now();
  Transcription transcription(transcriber, options, hooks);
  for (std::size_t i = 0; i < jobs.size(); ++i) transcription.hear(i, jobs[i]);
  transcription.flush();
  transcription.totals.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return transcription.totals;
}

}  // namespace chorus
