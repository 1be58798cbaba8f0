#include <chorus/apps/commands.h>
#include <chorus/apps/open_run.h>
#include <chorus/apps/transcript_input.h>
#include <chorus/apps/transcript_writer.h>
#include <chorus/core/posix_file.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

namespace chorus {
namespace {

void put_on_standard_output(std::string_view text) {
  const bool all = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  require(all && std::fflush(stdout) == 0, "transcribe", "standard output can't be written: ", std::strerror(errno));
}

/// Where transcripts go as they come: one writer for all recordings, or one per recording.
class Output {
 public:
  Output(const TranscribeOptions& options, const std::vector<TranscriptSource>& sources)
      : options_(options), sources_(sources) {
    if (options.output_dir.empty()) {
      writer_ = make_writer(options.format, options.word_times, [this](std::string_view text) { put(text); });
      return;
    }
    std::map<std::filesystem::path, std::string> taken;
    for (const auto& source : sources) {
      const auto [other, free] = taken.emplace(file_of(source), source.name());
      require(free, "transcribe", "--output-dir: ", source.name(), " and ", other->second, " would both be written to ",
              other->first);
    }
  }

  void segment(std::size_t job, const WrittenSegment& segment) {
    begin(job);
    writer_->segment(segment);
    if (!segment.text.empty()) text_ += (text_.empty() ? "" : " ") + segment.text;
  }
  void end(std::size_t job, double seconds, const std::string& problem) {
    begin(job);
    writer_->end(seconds, problem);
    if (!options_.output_manifest.empty()) manifest_ += output_line(sources_[job], seconds, text_, problem);
    text_.clear();
    begun_ = false;
    if (options_.output_dir.empty()) return;
    writer_->finish();
    write_file_atomically(file_of(sources_[job]), kept_);
    kept_.clear();
  }
  void finish() {
    if (options_.output_dir.empty()) writer_->finish();
    if (!options_.output.empty()) write_file_atomically(options_.output, kept_);
    if (!options_.output_manifest.empty()) write_file_atomically(options_.output_manifest, manifest_);
  }

 private:
  std::filesystem::path file_of(const TranscriptSource& source) const {
    const std::string stem = source.from_pipe ? "stdin" : source.entry.audio.stem().string();
    return options_.output_dir / (stem + '.' + (options_.format == "text" ? "txt" : options_.format));
  }
  void begin(std::size_t job) {
    if (begun_) return;
    begun_ = true;
    if (!options_.output_dir.empty())
      writer_ = make_writer(options_.format, options_.word_times, [this](std::string_view text) { put(text); });
    writer_->recording(sources_[job].name());
  }
  void put(std::string_view text) {
    if (options_.output.empty() && options_.output_dir.empty())
      put_on_standard_output(text);
    else
      kept_ += text;
  }

  const TranscribeOptions& options_;
  const std::vector<TranscriptSource>& sources_;
  std::unique_ptr<TranscriptWriter> writer_;
  std::string kept_, manifest_, text_;
  bool begun_ = false;
};

std::vector<TranscriptSource> sources_of(const TranscribeOptions& options, std::int64_t& bad_lines) {
  auto sources = list_sources(options.inputs);
  const auto report = [&](const std::string& problem) {
    std::fprintf(stderr, "chorus: %s\n", problem.c_str());
    ++bad_lines;
  };
  if (!options.manifest.empty())
    for (auto& source : list_manifest(options.manifest, report)) sources.push_back(std::move(source));
  require(!sources.empty(), "transcribe", "nothing to transcribe: name sound files, folders, @lists, - or --manifest");
  return sources;
}

/// What contradicts itself is said before a model is loaded.
void check(const TranscribeOptions& options, const std::vector<TranscriptSource>& sources) {
  const bool subtitles = options.format == "srt" || options.format == "vtt";
  require(!subtitles || sources.size() == 1 || !options.output_dir.empty(), "transcribe", options.format,
          " holds one recording; ", sources.size(), " are given: use --output-dir");
  require(options.output.empty() || options.output_dir.empty(), "transcribe", "--output and --output-dir exclude each other");
  require(!options.word_times || options.format != "text", "transcribe", "--word-times: text has no times; use json, jsonl, ",
          "srt or vtt");
  const bool pipe = std::ranges::any_of(sources, &TranscriptSource::from_pipe);
  require(options.raw.empty() || pipe, "transcribe", "--raw describes standard input, which is not among the inputs (-)");
  require(options.raw.empty() == (options.sample_rate == 0), "transcribe", "--raw and --sample-rate go together");
}

}  // namespace

int run_transcribe(const TranscribeOptions& options) {
  std::int64_t bad_lines = 0;
  const auto sources = sources_of(options, bad_lines);
  check(options, sources);
  // A folder that can't be there is found before hours of work, not after.
  if (!options.output_dir.empty()) make_folders(options.output_dir);
  for (const auto& file : {options.output, options.output_manifest})
    if (file.has_parent_path()) make_folders(file.parent_path());
  const LoadedRun run = open_run(options.run, options.threads);
  require(run.config.model.perception, "transcribe", "the model of ", options.run.string(), " reads text only");
  const Transcriber& transcriber = *run.transcriber;
  require(!options.ctc || transcriber.has_ctc(), "transcribe", "--ctc: the model of ", options.run.string(),
          " has no CTC head (model.ctc_head)");
  const bool ctc = options.ctc || !transcriber.has_decoder();
  std::optional<RawFormat> raw;
  if (!options.raw.empty()) raw = {options.raw, options.sample_rate, options.channels};

  std::vector<TranscriptionJob> jobs;
  for (const auto& source : sources) jobs.push_back(job_of(source, run.config.features.sample_rate, raw));
  TranscriptionOptions how = transcription_options(options.hearing, run.config);
  how.word_times = options.word_times;
  const bool live = std::ranges::any_of(sources, &TranscriptSource::from_pipe);
  if (live && !options.hearing.batch_seconds) how.batch_seconds = 0;

  Output output(options, sources);
  TranscriptionHooks hooks;
  hooks.segment = [&](std::size_t job, const Segment& segment) { output.segment(job, written(segment, ctc)); };
  hooks.end = [&](std::size_t job, double seconds, const std::string& problem) {
    output.end(job, seconds, problem);
    if (problem.empty()) return;
    const bool named = problem.find(jobs[job].name) != problem.npos;
    std::fprintf(stderr, "chorus: %s%s\n", named ? "" : (jobs[job].name + ": ").c_str(), problem.c_str());
  };
  const TranscriptionTotals totals = transcribe_all(transcriber, jobs, how, hooks);
  output.finish();
  std::fprintf(stderr, "%s\n", totals_line(totals).c_str());
  return totals.failed || bad_lines ? 1 : 0;
}

}  // namespace chorus
