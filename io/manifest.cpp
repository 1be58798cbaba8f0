#include <chorus/core/error.h>
#include <chorus/core/posix_file.h>
#include <chorus/io/manifest.h>
#include <chorus/io/shards.h>
#include <chorus/io/unicode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

namespace chorus {
namespace {

using nlohmann::json;

/// A value as messages show it: not the megabytes that a broken file may hold.
std::string shown(std::string text) {
  constexpr std::size_t most = 80;
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not inside a character
  return text.substr(0, end) + "...";
}

/// Reads the fields of one line; knows where it is.
struct Line {
  const json& object;
  const std::string& where;

  template <class... Parts>
  void check(bool ok, const Parts&... parts) const {
    require(ok, "read_manifest", where, ": ", parts...);
  }
  const json* find(const char* field) const {
    const auto it = object.find(field);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }
  std::string fields() const {
    std::string names;
    for (const auto& [name, value] : object.items()) names += (names.empty() ? "" : ", ") + name;
    return names.empty() ? "no field" : shown(names);
  }
  std::string text(const char* field, bool needed) const {
    const json* value = find(field);
    if (!value && needed) check(false, "field '", field, "' is missing; the line has ", fields());
    if (!value) return {};
    check(value->is_string(), "field '", field, "' is ", shown(value->dump()), ", expected a string");
    return value->get<std::string>();
  }
  double number_or(const char* field, double otherwise) const {
    const json* value = find(field);
    if (!value) return otherwise;
    check(value->is_number() && std::abs(value->get<double>()) <= longest, "field '", field, "' is ", shown(value->dump()),
          ", expected a number of seconds");
    return value->get<double>();
  }
  std::int64_t shard() const {
    const json* value = find("shard_id");
    if (!value) return -1;
    check(value->is_number_unsigned() && value->get<std::uint64_t>() < std::uint64_t{1} << 31, "field 'shard_id' is ",
          shown(value->dump()), ", expected the number of a tar file");
    return value->get<std::int64_t>();
  }
  static constexpr double longest = 1e7;  // four months
};

/// Where the sound is: a file, a member of a shard named here, or (`tarred`) of one that the caller knows.
void read_place(const Line& line, const std::filesystem::path& folder, bool tarred, ManifestEntry& entry) {
  entry.audio = line.text("audio_filepath", true);
  line.check(!entry.audio.empty(), "field 'audio_filepath' is empty");
  entry.shard = line.shard();
  const std::filesystem::path tar = line.text("tarred_audio_filepath", false);
  if (tarred) return;
  line.check(entry.shard < 0 || !tar.empty(), "field 'shard_id' is ", entry.shard,
             ": the sound lies in a tar file; give tarred_audio_filepaths");
  if (!tar.empty())
    entry.tar = tar.is_relative() ? folder / tar : tar;
  else if (entry.audio.is_relative())
    entry.audio = folder / entry.audio;
}

/// What the parser says, without the words that no user needs and without the text itself, which may be long.
std::string reason(const json::exception& error) {
  std::string text = error.what();
  for (const char* before : {"] ", "parse error at line 1, "})
    if (const auto at = text.find(before); at != text.npos) text.erase(0, at + std::strlen(before));
  if (const auto at = text.find("; last read: "); at != text.npos) {
    const auto after = text.find("; expected ", at + 13);
    text = text.substr(0, at) + (after == text.npos ? "" : text.substr(after));
  }
  return shown(text);
}

/// How deep the brackets of a JSON text nest. JSON that is printed recurses as deep, and stacks are finite.
std::size_t nesting(std::string_view text) {
  std::size_t depth = 0, deepest = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') ++i;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == '[' || c == '{') deepest = std::max(deepest, ++depth);
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  return deepest;
}

/// Nothing for lines to skip.
std::optional<ManifestEntry> read_line(const std::string& raw, const std::string& where, const std::filesystem::path& folder,
                                       Content content) {
  if (raw.find_first_not_of(" \t\r") == raw.npos) return {};
  const std::size_t bad = first_bad_utf8(raw);
  if (bad != raw.npos)
    fail("read_manifest", where, ": byte ", bad + 1, " of the line, ", static_cast<int>(static_cast<unsigned char>(raw[bad])),
         ", belongs to no character of UTF-8");
  constexpr std::size_t most = 100;
  const std::size_t depth = nesting(raw);
  if (depth > most) fail("read_manifest", where, ": values nest ", depth, " deep, expected at most ", most);
  json object;
  try {
    object = json::parse(raw);
  } catch (const json::exception& error) {
    fail("read_manifest", where, ": no JSON: ", reason(error), "; expected one object per line");
  }
  const Line line{object, where};
  line.check(object.is_object(), "expected a JSON object, found ", object.type_name());
  if (const json* skip = line.find("_skipme")) {
    line.check(skip->is_boolean() || skip->is_number(), "field '_skipme' is ", shown(skip->dump()), ", expected true or false");
    if (skip->is_boolean() ? skip->get<bool>() : skip->get<double>() != 0) return {};
  }
  ManifestEntry entry;
  if (content != Content::text) read_place(line, folder, content == Content::tarred, entry);
  entry.text = line.text("text", content != Content::sound);
  entry.lang = line.text("lang", false);
  entry.id = line.text("id", false);
  if (content == Content::text) return entry;
  entry.speaker = line.text("speaker", false);
  entry.offset = line.number_or("offset", 0);
  entry.duration = line.number_or("duration", -1);
  line.check(entry.offset >= 0, "field 'offset' is ", entry.offset, ", expected seconds >= 0");
  line.check(entry.duration > 0 || !line.find("duration"), "field 'duration' is ", entry.duration, ", expected seconds > 0");
  return entry;
}

/// What a file that is no text may be.
void check_start(const std::filesystem::path& file, std::string_view start) {
  const auto refuse = [&](const char* what) {
    fail("read_manifest", file.string(), " is ", what, ", expected JSON lines in UTF-8");
  };
  if (start.starts_with("\x1f\x8b")) refuse("compressed by gzip");
  if (start.starts_with("\xff\xfe") || start.starts_with("\xfe\xff")) refuse("UTF-16");
  if (start.starts_with("RIFF") || start.starts_with("fLaC") || start.starts_with("OggS")) refuse("a sound file");
}

}  // namespace

std::string place(const ManifestEntry& entry) {
  return entry.manifest ? *entry.manifest + ':' + std::to_string(entry.line) : entry.audio.string();
}

std::vector<ManifestEntry> read_manifest(const std::filesystem::path& file, const BadLine& report, Content content) {
  require(!std::filesystem::is_directory(file), "read_manifest", file.string(), " is a folder, expected a file of JSON lines");
  std::ifstream in(file, std::ios::binary);
  if (!in.good()) fail_errno("read_manifest", "open", file);
  const auto name = std::make_shared<const std::string>(file.string());
  std::vector<ManifestEntry> entries;
  constexpr std::size_t shown_problems = 20;
  std::string problems;
  std::size_t bad = 0;
  std::vector<char> buffer(std::size_t{1} << 20);  // a longer line is no manifest's
  for (std::int64_t number = 1; in.getline(buffer.data(), static_cast<std::streamsize>(buffer.size())); ++number) {
    const std::string raw(buffer.data(), static_cast<std::size_t>(in.gcount()) - (in.eof() ? 0 : 1));
    if (number == 1) check_start(file, raw);
    try {
      auto entry = read_line(raw, *name + ':' + std::to_string(number), file.parent_path(), content);
      if (!entry) continue;
      entry->line = number;
      entry->manifest = name;
      entries.push_back(std::move(*entry));
    } catch (const Error& error) {
      if (report) report(error.what());
      if (++bad <= shown_problems) problems += std::string(bad > 1 ? "\n  " : "") + error.what();
    }
  }
  require(!in.bad() && (in.eof() || static_cast<std::size_t>(in.gcount()) + 1 < buffer.size()), "read_manifest", file.string(),
          in.bad() ? ": reading failed after " : " has a line of more than 1048575 bytes, expected JSON lines; after ",
          entries.size(), " entries");
  if (bad > 0 && !report)
    throw Error(problems + (bad > shown_problems ? "\n  and " + std::to_string(bad - shown_problems) + " more lines" : ""));
  return entries;
}

void write_manifest(const std::filesystem::path& file, std::span<const ManifestEntry> entries) {
  std::string text;
  for (const ManifestEntry& entry : entries) {
    nlohmann::ordered_json object;
    if (!entry.audio.empty()) object["audio_filepath"] = entry.audio.string();
    if (!entry.tar.empty()) object["tarred_audio_filepath"] = entry.tar.string();
    if (entry.shard >= 0) object["shard_id"] = entry.shard;
    if (entry.offset != 0) object["offset"] = entry.offset;
    if (entry.duration >= 0) object["duration"] = entry.duration;
    object["text"] = entry.text;
    if (!entry.lang.empty()) object["lang"] = entry.lang;
    if (!entry.id.empty()) object["id"] = entry.id;
    if (!entry.speaker.empty()) object["speaker"] = entry.speaker;
    try {
      text += object.dump() + '\n';
    } catch (const json::exception& error) {
      fail("write_manifest", file.string(), ": the entry of ", entry.audio.string(),
           " can't be written as JSON: ", error.what());
    }
  }
  write_file_atomically(file, text);
}

void fill_durations(std::span<ManifestEntry> entries) {
  for (ManifestEntry& entry : entries)
    if (entry.duration < 0) entry.duration = audio_info(entry).seconds() - entry.offset;
}

}  // namespace chorus
