#include <chorus/core/error.h>
#include <chorus/io/import.h>
#include <chorus/io/import_list.h>
#include <chorus/io/md5.h>
#include <chorus/io/shards.h>
#include <chorus/io/unicode.h>

#include <algorithm>
#include <array>

namespace chorus {
namespace {

bool is_sound(std::string extension) {
  static constexpr std::array<std::string_view, 5> known{".wav", ".flac", ".ogg", ".opus", ".mp3"};
  for (char& c : extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return std::ranges::find(known, extension) != known.end();
}

/// Sound files by the name that a list may call them.
class SoundFiles {
 public:
  explicit SoundFiles(const std::filesystem::path& folder) : folder_(folder) {
    require(std::filesystem::is_directory(folder), "data manifest", folder.string(), " is no folder of sound files");
    for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
      if (!file.is_regular_file() || !is_sound(file.path().extension().string())) continue;
      const auto inside = std::filesystem::relative(file.path(), folder);
      all_.insert(file.path());
      by_path_[inside.generic_string()] = file.path();
      by_bare_path_[std::filesystem::path(inside).replace_extension().generic_string()].push_back(file.path());
      by_stem_[file.path().stem().string()].push_back(file.path());
    }
  }
  /// The file, or why there is none.
  std::pair<std::filesystem::path, std::string> find(const std::string& name) {
    if (const std::filesystem::path given = name; given.is_absolute() && std::filesystem::exists(given)) return taken(given);
    if (const auto it = by_path_.find(name); it != by_path_.end()) return taken(it->second);
    for (const auto* names : {&by_bare_path_, &by_stem_})
      if (const auto it = names->find(name); it != names->end()) {
        if (it->second.size() == 1) return taken(it->second[0]);
        return {"", std::to_string(it->second.size()) + " sound files are called '" + name + "'"};
      }
    if (const std::filesystem::path plain = folder_ / name; std::filesystem::is_regular_file(plain)) return taken(plain);
    return {"", "no sound file '" + name + "' in " + folder_.string()};
  }
  const std::set<std::filesystem::path>& unused() const { return all_; }

 private:
  std::pair<std::filesystem::path, std::string> taken(const std::filesystem::path& file) {
    all_.erase(file);
    return {std::filesystem::absolute(file).lexically_normal(), ""};
  }
  std::filesystem::path folder_;
  std::set<std::filesystem::path> all_;  // not asked for yet
  std::map<std::string, std::filesystem::path> by_path_;
  std::map<std::string, std::vector<std::filesystem::path>> by_bare_path_, by_stem_;
};

}  // namespace

Imported import_folder(const std::filesystem::path& audio, const std::filesystem::path& list) {
  Imported out;
  SoundFiles files(audio);
  for (const ListedText& listed : read_text_list(list)) {
    const auto [file, problem] = files.find(listed.name);
    if (!problem.empty()) {
      out.left_out.push_back({Severity::warning, "no sound", list.string() + ':' + std::to_string(listed.line), problem});
      continue;
    }
    ManifestEntry entry{.audio = file,
                        .text = listed.text,
                        .lang = listed.lang,
                        .id = listed.name,
                        .line = static_cast<std::int64_t>(listed.line)};
    entry.manifest = std::make_shared<const std::string>(list.string());
    entry.speaker = listed.speaker;
    out.entries.push_back(std::move(entry));
  }
  for (const auto& file : files.unused())
    out.left_out.push_back({Severity::warning, "no text", file.string(), "the list doesn't name it"});
  return out;
}

void finish_import(Imported& imported) {
  std::vector<ManifestEntry> good;
  for (ManifestEntry& entry : imported.entries) {
    const auto leave_out = [&](const char* kind, const std::string& why) {
      imported.left_out.push_back({Severity::warning, kind, place(entry), why});
    };
    if (plain_words(entry.text).empty()) {
      leave_out("no text", "no letter and no digit in '" + entry.text + "'");
      continue;
    }
    try {
      const double end = audio_info(entry).seconds();
      if (entry.duration < 0) entry.duration = end - entry.offset;
      std::ostringstream range;
      range << entry.offset << " to " << entry.offset + entry.duration << " s of " << end << " s";
      if (entry.duration > 0 && entry.offset >= 0 && entry.offset + entry.duration <= end + 0.01) {
        good.push_back(std::move(entry));
        continue;
      }
      leave_out("beyond the end", range.str());
    } catch (const Error& error) {
      leave_out("unreadable sound", error.what());
    }
  }
  imported.entries = std::move(good);
}

bool is_held_out(const ManifestEntry& entry, double share) {
  constexpr unsigned parts = 1'000'000;
  return md5_modulo(plain_words(entry.text), parts) < share * parts;
}

}  // namespace chorus
