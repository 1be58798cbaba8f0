#include <chorus/apps/transcript_input.h>
#include <chorus/io/shards.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>

namespace chorus {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// What libsndfile of Debian 12 reads and people have.
bool is_sound_file(const fs::path& file) {
  std::string extension = file.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::string_view known[] = {".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3",
                                        ".aif", ".aiff", ".au",  ".caf", ".w64",  ".rf64"};
  return std::ranges::find(known, extension) != std::end(known);
}

void list(const std::string& input, std::vector<TranscriptSource>& out) {
  if (input == "-") {
    const auto same = [](const TranscriptSource& s) { return s.from_pipe; };
    require(std::ranges::none_of(out, same), "transcribe", "standard input (-) is named twice");
    out.push_back({.entry = {.audio = "-", .text = ""}, .from_pipe = true});
  } else if (input.starts_with('@')) {
    const fs::path file = input.substr(1);
    std::ifstream lines(file);
    require(lines.good(), "transcribe", "cannot open the list ", file);
    for (std::string line; std::getline(lines, line);) {
      while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back()))) line.pop_back();
      require(!line.starts_with('@'), "transcribe", file, ": a list names ", line, "; lists of lists are not read");
      if (!line.empty()) list(line, out);
    }
    require(lines.eof(), "transcribe", "reading the list ", file, " failed");
  } else if (fs::is_directory(input)) {
    std::vector<fs::path> files;
    for (const auto& item : fs::recursive_directory_iterator(input))
      if (item.is_regular_file() && is_sound_file(item.path())) files.push_back(item.path());
    require(!files.empty(), "transcribe", "the folder ", input, " has no sound files");
    std::ranges::sort(files);
    for (auto& file : files) out.push_back({.entry = {.audio = file, .text = ""}});
  } else {
    out.push_back({.entry = {.audio = input, .text = ""}});
  }
}

AudioStream open_standard_input(int sample_rate, const std::optional<RawFormat>& raw) {
  const std::string name = "standard input";
  if (raw) return {raw_from_pipe(STDIN_FILENO, name, *raw), sample_rate};
  struct stat status {};
  // A redirected file can seek, so it may be of any format.
  if (::fstat(STDIN_FILENO, &status) == 0 && S_ISREG(status.st_mode)) return AudioStream::open("/dev/stdin", sample_rate);
  return {wav_from_pipe(STDIN_FILENO, name), sample_rate};
}

}  // namespace

std::vector<TranscriptSource> list_sources(const std::vector<std::string>& inputs) {
  std::vector<TranscriptSource> out;
  for (const auto& input : inputs) list(input, out);
  return out;
}

std::vector<TranscriptSource> list_manifest(const fs::path& manifest, const BadLine& report) {
  std::vector<TranscriptSource> out;
  std::vector<ManifestEntry> entries = read_manifest(manifest, report, Content::sound);
  (void)locate_members(entries);  // those that aren't found say so when they are opened
  for (auto& entry : entries) out.push_back({.entry = std::move(entry)});
  // The lines as they are, for the output manifest: it keeps fields that are not ours.
  std::ifstream in(manifest, std::ios::binary);
  std::size_t next = 0;
  std::string line;
  for (std::int64_t number = 1; next < out.size() && std::getline(in, line); ++number)
    if (out[next].entry.line == number) out[next++].line = line;
  require(next == out.size(), "transcribe", manifest, " changed while it was read");
  return out;
}

std::vector<TranscriptSource> sources_of(std::vector<ManifestEntry> entries) {
  std::vector<TranscriptSource> sources;
  for (auto& entry : entries) sources.push_back({.entry = std::move(entry)});
  return sources;
}

TranscriptionJob job_of(const TranscriptSource& source, int sample_rate, const std::optional<RawFormat>& raw) {
  if (source.from_pipe) return {"standard input", [=] { return open_standard_input(sample_rate, raw); }};
  return {source.name(), [entry = source.entry, sample_rate] { return open_audio(entry, sample_rate); }};
}

std::string output_line(const TranscriptSource& source, double seconds, const std::string& text, const std::string& problem) {
  Json json;
  if (!source.line.empty())
    json = Json::parse(source.line);
  else
    json = {{"audio_filepath", source.name()}, {"duration", std::round(seconds * 1000) / 1000}};
  json["pred_text"] = text;
  if (!problem.empty()) json["error"] = problem;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace chorus
