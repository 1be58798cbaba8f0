#include <chorus/core/error.h>
#include <chorus/io/import.h>
#include <chorus/io/import_list.h>
#include <chorus/io/shards.h>
#include <chorus/io/unicode.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace chorus {
namespace {

struct TarSample {
  std::vector<const TarMember*> sounds, texts, jsons;
};

std::string content(const std::filesystem::path& tar, const TarMember& member) {
  const std::vector<std::byte> bytes = read_tar_member(tar, member);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// What the .json or .txt beside a sound says; throws what is wrong with it.
void describe(const std::filesystem::path& tar, const TarSample& sample, ManifestEntry& entry) {
  if (!sample.jsons.empty()) {
    try {
      const auto json = nlohmann::json::parse(content(tar, *sample.jsons[0]));
      const auto text = [&](const char* field) {
        return json.contains(field) && !json[field].is_null() ? json[field].get<std::string>() : std::string();
      };
      entry.text = trimmed_text(text("text"));
      entry.lang = text("lang");
      entry.speaker = text("speaker");
      if (const std::string id = text("id"); !id.empty()) entry.id = id;
    } catch (const nlohmann::json::exception& error) {
      fail("data manifest", sample.jsons[0]->name, ": ", error.what());
    }
  }
  if (!sample.texts.empty()) {
    const std::string text = trimmed_text(content(tar, *sample.texts[0]));
    require(first_bad_utf8(text) == text.npos, "data manifest", sample.texts[0]->name, " is not UTF-8");
    require(entry.text.empty() || entry.text == text, "data manifest", sample.texts[0]->name, " and ",
            sample.jsons.empty() ? "" : sample.jsons[0]->name, " disagree about the text");
    entry.text = text;
  }
}

void import_tar(const std::filesystem::path& tar, Imported& out) {
  const TarIndex index = tar_index(tar);
  if (!index.problem.empty()) out.left_out.push_back({Severity::warning, "damaged shard", tar.string(), index.problem});
  std::map<std::string, TarSample> samples;
  std::vector<std::string> order;
  for (const TarMember& member : index.members) {
    const std::size_t file = member.name.rfind('/') == member.name.npos ? 0 : member.name.rfind('/') + 1;
    const std::size_t dot = member.name.find('.', file);
    if (dot == member.name.npos) continue;
    const std::string key = member.name.substr(0, dot), extension = std::filesystem::path(member.name).extension().string();
    const auto [it, fresh] = samples.try_emplace(key);
    if (fresh) order.push_back(key);
    static const std::set<std::string> sounds{".wav", ".flac", ".ogg", ".opus", ".mp3"};
    if (sounds.contains(extension)) it->second.sounds.push_back(&member);
    if (extension == ".txt") it->second.texts.push_back(&member);
    if (extension == ".json") it->second.jsons.push_back(&member);
  }
  const std::filesystem::path whole = std::filesystem::absolute(tar).lexically_normal();
  for (const std::string& key : order) {
    const TarSample& sample = samples[key];
    const auto leave_out = [&](const char* kind, const std::string& why) {
      out.left_out.push_back({Severity::warning, kind, tar.string() + ':' + key, why});
    };
    if (sample.sounds.size() != 1) {
      leave_out("no sound", std::to_string(sample.sounds.size()) + " sound files, expected one");
      continue;
    }
    if (sample.texts.size() > 1 || sample.jsons.size() > 1 || sample.texts.size() + sample.jsons.size() == 0) {
      leave_out("no text", std::to_string(sample.texts.size()) + " .txt and " + std::to_string(sample.jsons.size()) +
                               " .json, expected one");
      continue;
    }
    ManifestEntry entry{.audio = sample.sounds[0]->name, .text = "", .id = key};
    entry.tar = whole;
    entry.shard = shard_number(tar);
    entry.tar_offset = sample.sounds[0]->offset;
    entry.tar_bytes = sample.sounds[0]->bytes;
    try {
      describe(tar, sample, entry);
      out.entries.push_back(std::move(entry));
    } catch (const Error& error) {
      leave_out("unreadable text", error.what());
    }
  }
}

}  // namespace

Imported import_tars(std::span<const std::filesystem::path> tars) {
  Imported out;
  for (const std::filesystem::path& tar : tars) import_tar(tar, out);
  return out;
}

}  // namespace chorus
