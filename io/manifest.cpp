#include <chorus/core/error.h>
#include <chorus/io/audio.h>
#include <chorus/io/manifest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace chorus {
namespace {

using nlohmann::json;

/// Reads the fields of one line; knows where it is.
struct Line {
  const json& object;
  const std::filesystem::path& file;
  std::size_t number;

  template <class... Parts>
  void check(bool ok, const Parts&... parts) const {
    require(ok, "read_manifest", file.string(), ':', number, ": ", parts...);
  }
  const json* find(const char* field) const {
    const auto it = object.find(field);
    return it == object.end() || it->is_null() ? nullptr : &*it;
  }
  std::string text(const char* field, bool needed) const {
    const json* value = find(field);
    check(value || !needed, "field '", field, "' is missing");
    if (!value) return {};
    check(value->is_string(), "field '", field, "' is ", value->dump(), ", expected a string");
    return value->get<std::string>();
  }
  double number_or(const char* field, double otherwise) const {
    const json* value = find(field);
    if (!value) return otherwise;
    check(value->is_number() && std::isfinite(value->get<double>()), "field '", field, "' is ", value->dump(),
          ", expected a number");
    return value->get<double>();
  }
};

}  // namespace

std::vector<ManifestEntry> read_manifest(const std::filesystem::path& file) {
  std::ifstream in(file);
  require(in.good(), "read_manifest", "cannot open ", file);
  std::vector<ManifestEntry> entries;
  std::string raw;
  for (std::size_t number = 1; std::getline(in, raw); ++number) {
    if (raw.find_first_not_of(" \t\r") == raw.npos) continue;
    json object;
    try {
      object = json::parse(raw);
    } catch (const json::exception& error) {
      fail("read_manifest", file.string(), ':', number, ": no JSON: ", error.what());
    }
    const Line line{object, file, number};
    line.check(object.is_object(), "expected a JSON object, found ", object.type_name());
    if (const json* skip = line.find("_skipme")) {
      line.check(skip->is_boolean() || skip->is_number(), "field '_skipme' is ", skip->dump(), ", expected true or false");
      if (skip->is_boolean() ? skip->get<bool>() : skip->get<double>() != 0) continue;
    }
    ManifestEntry entry;
    entry.audio = line.text("audio_filepath", true);
    line.check(!entry.audio.empty(), "field 'audio_filepath' is empty");
    if (entry.audio.is_relative()) entry.audio = file.parent_path() / entry.audio;
    entry.text = line.text("text", true);
    entry.lang = line.text("lang", false);
    entry.id = line.text("id", false);
    entry.offset = line.number_or("offset", 0);
    entry.duration = line.number_or("duration", -1);
    line.check(entry.offset >= 0, "field 'offset' is ", entry.offset, ", expected seconds >= 0");
    line.check(entry.duration > 0 || !line.find("duration"), "field 'duration' is ", entry.duration, ", expected seconds > 0");
    entries.push_back(std::move(entry));
  }
  require(in.eof(), "read_manifest", file, ": reading failed after ", entries.size(), " entries");
  return entries;
}

void write_manifest(const std::filesystem::path& file, std::span<const ManifestEntry> entries) {
  std::ofstream out(file);
  require(out.good(), "write_manifest", "cannot write ", file);
  for (const ManifestEntry& entry : entries) {
    nlohmann::ordered_json object;
    object["audio_filepath"] = entry.audio.string();
    if (entry.offset != 0) object["offset"] = entry.offset;
    if (entry.duration >= 0) object["duration"] = entry.duration;
    object["text"] = entry.text;
    if (!entry.lang.empty()) object["lang"] = entry.lang;
    if (!entry.id.empty()) object["id"] = entry.id;
    out << object.dump() << '\n';
  }
  out.flush();
  require(out.good(), "write_manifest", "writing ", file, " failed");
}

void fill_durations(std::span<ManifestEntry> entries) {
  for (ManifestEntry& entry : entries)
    if (entry.duration < 0) entry.duration = audio_info(entry.audio).seconds() - entry.offset;
}

}  // namespace chorus
