#include <chorus/core/error.h>
#include <chorus/core/posix_file.h>
#include <chorus/io/import.h>
#include <chorus/io/import_list.h>
#include <chorus/io/unicode.h>

#include <sstream>

namespace chorus {
namespace {

/// One line of a Kaldi table: a key and the rest.
struct Row {
  std::string key, rest;
  std::size_t line = 0;
};

std::vector<Row> read_rows(const std::filesystem::path& file) {
  std::istringstream in(read_file(file));
  std::vector<Row> rows;
  std::string raw;
  for (std::size_t number = 1; std::getline(in, raw); ++number) {
    require(first_bad_utf8(raw) == raw.npos, "data manifest", file.string(), ':', number, ": the line is not UTF-8");
    const std::string line = trimmed_text(raw);
    if (line.empty()) continue;
    const std::size_t space = std::min(line.find_first_of(" \t"), line.size());
    rows.push_back({line.substr(0, space), trimmed_text(std::string_view(line).substr(space)), number});
  }
  return rows;
}

std::map<std::string, std::string> read_optional(const std::filesystem::path& file) {
  std::map<std::string, std::string> out;
  if (std::filesystem::exists(file))
    for (Row& row : read_rows(file)) out[row.key] = std::move(row.rest);
  return out;
}

std::map<std::string, std::filesystem::path> read_wav_scp(const std::filesystem::path& file) {
  std::map<std::string, std::filesystem::path> out;
  for (const Row& row : read_rows(file)) {
    require(!row.rest.ends_with('|') && !row.rest.starts_with('|'), "data manifest", file.string(), ':', row.line, ": '",
            row.rest, "' is a command; Chorus runs none: write its output to a file and name that");
    std::filesystem::path path = row.rest;
    if (path.is_relative() && !std::filesystem::exists(path)) path = file.parent_path() / path;
    out[row.key] = std::filesystem::absolute(path).lexically_normal();
  }
  return out;
}

struct Segment {
  std::string recording;
  double start = 0, end = -1;
};

std::map<std::string, Segment> read_segments(const std::filesystem::path& file) {
  std::map<std::string, Segment> out;
  for (const Row& row : read_rows(file)) {
    Segment s;
    std::istringstream fields(row.rest);
    const bool good =
        static_cast<bool>(fields >> s.recording >> s.start >> s.end) && s.start >= 0 && (s.end > s.start || s.end == -1);
    require(good, "data manifest", file.string(), ':', row.line, ": '", row.rest,
            "', expected recording, start and end in seconds");
    out[row.key] = s;
  }
  return out;
}

}  // namespace

Imported import_kaldi(const std::filesystem::path& folder) {
  const std::filesystem::path text = folder / "text", segments_file = folder / "segments";
  const auto recordings = read_wav_scp(folder / "wav.scp");
  const bool segmented = std::filesystem::exists(segments_file);
  const auto segments = segmented ? read_segments(segments_file) : std::map<std::string, Segment>{};
  const auto speakers = read_optional(folder / "utt2spk"), languages = read_optional(folder / "utt2lang");
  Imported out;
  std::set<std::string> heard, told;
  for (const Row& row : read_rows(text)) {
    const std::string where = text.string() + ':' + std::to_string(row.line);
    Segment segment{row.key};
    told.insert(row.key);
    if (segmented) {
      const auto it = segments.find(row.key);
      if (it == segments.end()) {
        out.left_out.push_back({Severity::warning, "no segment", where, "segments doesn't have '" + row.key + "'"});
        continue;
      }
      segment = it->second;
    }
    const auto it = recordings.find(segment.recording);
    if (it == recordings.end()) {
      out.left_out.push_back({Severity::warning, "no sound", where, "wav.scp doesn't have '" + segment.recording + "'"});
      continue;
    }
    heard.insert(segment.recording);
    ManifestEntry entry{.audio = it->second,
                        .text = row.rest,
                        .offset = segment.start,
                        .id = row.key,
                        .line = static_cast<std::int64_t>(row.line)};
    if (segment.end > 0) entry.duration = segment.end - segment.start;
    entry.manifest = std::make_shared<const std::string>(text.string());
    if (const auto found = speakers.find(row.key); found != speakers.end()) entry.speaker = found->second;
    if (const auto found = languages.find(row.key); found != languages.end()) entry.lang = found->second;
    out.entries.push_back(std::move(entry));
  }
  for (const auto& [utterance, segment] : segments)
    if (!told.contains(utterance))
      out.left_out.push_back({Severity::warning, "no text", segments_file.string(), "text doesn't have '" + utterance + "'"});
  for (const auto& [recording, path] : recordings)
    if (!heard.contains(recording))
      out.left_out.push_back(
          {Severity::warning, "no text", (folder / "wav.scp").string(), "nothing is said in '" + recording + "'"});
  return out;
}

}  // namespace chorus
