#include <chorus/core/error.h>
#include <chorus/io/asterisk.h>
#include <chorus/io/audio.h>
#include <chorus/io/md5.h>

#include <fstream>
#include <map>
#include <regex>

namespace chorus {
namespace {

std::string replaced(const std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(from, at)) != text.npos; at = found + from.size())
    out.append(text, at, found - at).append(to);
  return out.append(text, at);
}

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

}  // namespace

std::string normalize_prompt(std::string_view given) {
  std::string text(given);
  text = replaced(replaced(text, "\u2019", "'"), "\u2018", "'");
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  static const std::regex brackets(R"(\[[^\]]*\]|\([^)]*\)|<[^>]*>)"), address(R"(www\.(\w+)\.org)");
  text = std::regex_replace(text, brackets, " ");
  text = replaced(replaced(text, "*", " star "), "#", " pound ");
  text = std::regex_replace(text, address, "www dot $1 dot org");
  std::string out;
  for (const char c : text) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '\'';
    if (kept)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

AsteriskCorpus read_asterisk(const std::filesystem::path& texts, const std::filesystem::path& sounds) {
  std::ifstream in(texts);
  require(in.good(), "read_asterisk", "cannot open ", texts);
  require(std::filesystem::is_directory(sounds), "read_asterisk", sounds, " is no folder of sounds");
  AsteriskCorpus corpus;
  std::vector<ManifestEntry> entries;
  std::map<std::string, std::string> first_name;  // of each normalised text
  for (std::string raw; std::getline(in, raw);) {
    if (raw.starts_with("\xEF\xBB\xBF")) raw.erase(0, 3);
    const std::string line = trimmed(raw);
    const std::size_t colon = line.find(':');
    if (line.empty() || line[0] == ';' || colon == line.npos) continue;
    const std::string name = trimmed(line.substr(0, colon)), text = trimmed(line.substr(colon + 1));
    if (!text.empty() && (text[0] == '[' || text[0] == '(' || text[0] == '<')) {
      ++corpus.tones;
      continue;
    }
    ManifestEntry entry{.audio = sounds / (name + ".wav"), .text = normalize_prompt(text), .lang = "en", .id = name};
    if (entry.text.empty()) {
      ++corpus.no_text;
      continue;
    }
    if (!std::filesystem::exists(entry.audio)) {
      ++corpus.no_sound;
      continue;
    }
    entry.duration = audio_info(entry.audio).seconds();
    const double length = static_cast<double>(entry.text.size()), rate = length / entry.duration;
    if (entry.duration > 40 || rate > 24 || (length > 20 && rate < 4)) {
      ++corpus.unusable;
      continue;
    }
    const auto [group, fresh] = first_name.emplace(entry.text, name);
    if (!fresh) group->second = std::min(group->second, name);
    entries.push_back(std::move(entry));
  }
  require(!entries.empty(), "read_asterisk", texts, " names no sound in ", sounds);
  for (ManifestEntry& entry : entries) {
    const bool held = md5_modulo(first_name.at(entry.text), 10) == 0;
    (held ? corpus.heldout : corpus.train).push_back(std::move(entry));
  }
  return corpus;
}

AsteriskCorpus write_asterisk_manifests(const std::filesystem::path& texts, const std::filesystem::path& sounds,
                                        const std::filesystem::path& folder) {
  AsteriskCorpus corpus = read_asterisk(texts, sounds);
  std::filesystem::create_directories(folder);
  write_manifest(folder / "train.jsonl", corpus.train);
  write_manifest(folder / "heldout.jsonl", corpus.heldout);
  return corpus;
}

}  // namespace chorus
