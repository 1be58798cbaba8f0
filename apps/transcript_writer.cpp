#include <chorus/apps/transcript_writer.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace chorus {
namespace {

using Json = nlohmann::ordered_json;

/// So many decimals: milliseconds are finer than any of our frames.
double rounded(double value, double per_unit) { return std::round(value * per_unit) / per_unit; }
double time(double seconds) { return rounded(seconds, 1e3); }
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// Texts of segments make one text.
void append(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += ' ';
  text += more;
}

class TextWriter : public TranscriptWriter {
 public:
  explicit TextWriter(Put put) : TranscriptWriter(std::move(put)) {}
  void segment(const WrittenSegment& segment) override {
    std::string text = open_ ? "" : name_ + '\t';
    if (spoken_ && !segment.text.empty()) text += ' ';
    spoken_ = spoken_ || !segment.text.empty();
    open_ = true;
    put_(text + segment.text);
  }
  void end(double, const std::string&) override {
    if (open_) put_("\n");
    open_ = spoken_ = false;
  }

 private:
  bool open_ = false, spoken_ = false;
};

class JsonWriter : public TranscriptWriter {
 public:
  JsonWriter(Put put, bool lines, bool words) : TranscriptWriter(std::move(put)), lines_(lines), words_(words) {
    if (!lines_) put_("[");
  }
  void recording(const std::string& name) override {
    TranscriptWriter::recording(name);
    segments_ = Json::array();
    text_.clear();
    next_ = 0;
  }
  void segment(const WrittenSegment& segment) override {
    Json json;
    if (lines_) json["audio_filepath"] = name_;
    json["id"] = next_++;
    json["start"] = time(segment.start);
    json["end"] = time(segment.end);
    json["text"] = segment.text;
    json["avg_logprob"] = rounded(segment.log_p, 1e4);
    if (words_) {
      json["words"] = segment.words.empty() && !segment.text.empty() ? Json() : Json::array();
      for (const auto& word : segment.words)
        json["words"].push_back({{"word", word.text}, {"start", time(word.start)}, {"end", time(word.end)}});
    }
    if (lines_) return put_(dump(json) + '\n');
    append(text_, segment.text);
    segments_.push_back(std::move(json));
  }
  void end(double seconds, const std::string& problem) override {
    if (lines_) {
      if (!problem.empty()) put_(dump({{"audio_filepath", name_}, {"duration", time(seconds)}, {"error", problem}}) + '\n');
      return;
    }
    Json json{{"audio_filepath", name_}, {"duration", time(seconds)}, {"text", text_}, {"segments", segments_}};
    if (!problem.empty()) json["error"] = problem;
    put_((first_ ? "\n" : ",\n") + dump(json));
    first_ = false;
  }
  void finish() override {
    if (!lines_) put_("\n]\n");
  }

 private:
  bool lines_, words_, first_ = true;
  int next_ = 0;
  std::string text_;
  Json segments_ = Json::array();
};

class SubtitleWriter : public TranscriptWriter {
 public:
  SubtitleWriter(Put put, bool vtt) : TranscriptWriter(std::move(put)), vtt_(vtt) {
    if (vtt_) put_("WEBVTT\n\n");
  }
  void segment(const WrittenSegment& segment) override {
    if (segment.words.empty()) return cue(segment.start, segment.end, segment.text);
    constexpr std::size_t most_characters = 84;  // two lines of 42
    constexpr double most_seconds = 7;
    std::string text;
    double start = 0, end = 0;
    for (const auto& word : segment.words) {
      if (!text.empty() && (text.size() + 1 + word.text.size() > most_characters || word.end - start > most_seconds)) {
        cue(start, end, text);
        text.clear();
      }
      if (text.empty()) start = word.start;
      append(text, word.text);
      end = word.end;
    }
    cue(start, end, text);
  }

 private:
  void cue(double start, double end, const std::string& text) {
    if (text.empty()) return;
    const char separator = vtt_ ? '.' : ',';
    std::string out;
    if (!vtt_) out = std::to_string(++number_) + '\n';
    put_(out + subtitle_time(start, separator) + " --> " + subtitle_time(end, separator) + '\n' + text + "\n\n");
  }
  bool vtt_;
  int number_ = 0;
};

}  // namespace

WrittenSegment written(const Segment& segment, bool ctc) {
  const Transcript& t = segment.transcript;
  return ctc ? WrittenSegment{segment.start, segment.end, t.ctc, t.ctc_log_p, t.ctc_words}
             : WrittenSegment{segment.start, segment.end, t.text, t.text_log_p, t.words};
}

std::unique_ptr<TranscriptWriter> make_writer(const std::string& format, bool word_times, TranscriptWriter::Put put) {
  if (format == "text") return std::make_unique<TextWriter>(std::move(put));
  if (format == "json" || format == "jsonl") return std::make_unique<JsonWriter>(std::move(put), format == "jsonl", word_times);
  require(format == "srt" || format == "vtt", "transcribe", "format '", format, "'; text, json, jsonl, srt and vtt are there");
  return std::make_unique<SubtitleWriter>(std::move(put), format == "vtt");
}

std::string subtitle_time(double seconds, char separator) {
  const auto all = static_cast<long long>(std::llround(seconds * 1000));
  char text[40];
  std::snprintf(text, sizeof text, "%02lld:%02lld:%02lld%c%03lld", all / 3600000, all / 60000 % 60, all / 1000 % 60, separator,
                all % 1000);
  return text;
}

}  // namespace chorus
