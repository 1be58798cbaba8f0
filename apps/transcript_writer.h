// Transcripts as text, JSON or subtitles.
#pragma once
#include <chorus/apps/transcription.h>

namespace chorus {

/// What is written of a segment: the decoder's side of its transcript or the CTC head's.
struct WrittenSegment {
  double start = 0, end = 0;  ///< seconds
  std::string text;
  double log_p = 0;  ///< mean log-probability
  std::vector<TimedWord> words;
};
WrittenSegment written(const Segment& segment, bool ctc);

/// Writes recordings one after another, each segment as soon as it is told.
class TranscriptWriter {
 public:
  /// Takes finished pieces of output.
  using Put = std::function<void(std::string_view)>;
  virtual ~TranscriptWriter() = default;
  virtual void recording(const std::string& name) { name_ = name; }
  virtual void segment(const WrittenSegment& segment) = 0;
  /// `problem`: why the recording wasn't heard, or not to its end.
  virtual void end(double /*seconds*/, const std::string& /*problem*/) {}
  virtual void finish() {}

 protected:
  explicit TranscriptWriter(Put put) : put_(std::move(put)) {}
  std::string name_;
  Put put_;
};

/// text: a line per recording, its name, a tab and the transcript. json: an array with an object per recording
/// (audio_filepath, duration, text, segments, error) whose segments have id, start, end, text and avg_logprob, and words
/// (word, start, end) if `word_times`; null where the words can't be aligned. jsonl: those segments as lines, each with its
/// audio_filepath. srt and vtt: subtitles, a cue per segment or, with words, of at most 84 characters and 7 seconds; for one
/// recording.
std::unique_ptr<TranscriptWriter> make_writer(const std::string& format, bool word_times, TranscriptWriter::Put put);

/// "00:01:02,345", as subtitles give times; '.' in WebVTT.
std::string subtitle_time(double seconds, char separator);

}  // namespace chorus
