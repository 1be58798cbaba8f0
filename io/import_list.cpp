#include <chorus/core/error.h>
#include <chorus/core/posix_file.h>
#include <chorus/io/import_list.h>
#include <chorus/io/unicode.h>

#include <algorithm>
#include <sstream>

namespace chorus {
namespace {

std::string without_mark(std::string text) { return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text; }

/// The column with one of these names; negative if there is none.
int column(const std::vector<std::string>& header, std::initializer_list<const char*> names) {
  for (const char* name : names)
    for (std::size_t i = 0; i < header.size(); ++i)
      if (trimmed_text(header[i]) == name) return static_cast<int>(i);
  return -1;
}

std::vector<ListedText> read_table(const std::filesystem::path& file, const std::string& text, char separator) {
  const std::vector<CsvRecord> records = parse_csv(text, separator);
  require(!records.empty(), "data manifest", file.string(), " is empty, expected a header and records");
  const std::vector<std::string>& header = records[0].fields;
  const int name = column(header, {"audio_filepath", "path", "file", "filename", "name", "id"}),
            words = column(header, {"text", "sentence", "transcript", "transcription"}),
            lang = column(header, {"lang", "language", "locale"}),
            speaker = column(header, {"speaker", "speaker_id", "client_id"});
  std::string columns;
  for (const std::string& h : header) columns += (columns.empty() ? "" : ", ") + h;
  require(name >= 0, "data manifest", file.string(), ":1: no column audio_filepath, path, file, filename, name or id among ",
          columns);
  require(words >= 0, "data manifest", file.string(), ":1: no column text, sentence, transcript or transcription among ",
          columns);
  std::vector<ListedText> out;
  for (std::size_t r = 1; r < records.size(); ++r) {
    const auto field = [&](int at) {
      return at >= 0 && static_cast<std::size_t>(at) < records[r].fields.size() ? trimmed_text(records[r].fields[at]) : "";
    };
    out.push_back({field(name), field(words), field(lang), field(speaker), records[r].line});
  }
  return out;
}

std::vector<ListedText> read_lines(const std::string& text) {
  std::vector<ListedText> out;
  std::istringstream in(text);
  std::string raw;
  for (std::size_t number = 1; std::getline(in, raw); ++number) {
    const std::string line = trimmed_text(raw);
    if (line.empty() || line[0] == ';' || line[0] == '#') continue;
    std::size_t end = raw.find('\t');
    if (end == raw.npos) {
      end = line.find_first_of(" :");
      // A colon parts name and text only before a space: names may hold one.
      while (end != line.npos && line[end] == ':' && end + 1 < line.size() && line[end + 1] != ' ')
        end = line.find_first_of(" :", end + 1);
      out.push_back(
          {line.substr(0, end), end == line.npos ? "" : trimmed_text(std::string_view(line).substr(end + 1)), "", "", number});
    } else {
      out.push_back({trimmed_text(raw.substr(0, end)), trimmed_text(std::string_view(raw).substr(end + 1)), "", "", number});
    }
  }
  return out;
}

}  // namespace

std::string trimmed_text(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

std::vector<CsvRecord> parse_csv(const std::string& text, char separator) {
  std::vector<CsvRecord> out;
  std::size_t line = 1, at = 0;
  while (at < text.size()) {
    CsvRecord record{{""}, line};
    bool quoted = false;
    for (; at < text.size(); ++at) {
      const char c = text[at];
      line += c == '\n';
      if (quoted) {
        if (c == '"' && at + 1 < text.size() && text[at + 1] == '"')
          record.fields.back() += text[++at];
        else if (c == '"')
          quoted = false;
        else
          record.fields.back() += c;
      } else if (c == '"' && record.fields.back().empty() && separator == ',') {
        quoted = true;
      } else if (c == separator) {
        record.fields.emplace_back();
      } else if (c == '\n') {
        ++at;
        break;
      } else if (c != '\r') {
        record.fields.back() += c;
      }
    }
    if (record.fields.size() > 1 || !record.fields[0].empty()) out.push_back(std::move(record));
  }
  return out;
}

std::vector<ListedText> read_text_list(const std::filesystem::path& file) {
  const std::string text = without_mark(read_file(file));
  if (const std::size_t bad = first_bad_utf8(text); bad != text.npos)
    fail("data manifest", file.string(), ':',
         1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(bad), '\n'), ": the line is not UTF-8");
  if (file.extension() == ".csv") return read_table(file, text, ',');
  if (file.extension() == ".tsv") return read_table(file, text, '\t');
  return read_lines(text);
}

}  // namespace chorus
