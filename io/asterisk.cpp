#include <chorus/core/error.h>
#include <chorus/io/asterisk.h>
#include <chorus/io/audio.h>
#include <chorus/io/md5.h>
#include <chorus/io/unicode.h>

#include <fstream>
#include <map>
#include <regex>
#include <set>

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

/// How signs are read aloud in one language.
struct Reading {
  const char *star, *pound, *dot;
};
const Reading* reading_of(std::string_view lang) {
  static constexpr Reading english{"star", "pound", "dot"}, french{"\u00e9toile", "di\u00e8se", nullptr};
  return lang == "en" ? &english : lang == "fr" ? &french : nullptr;
}

/// A few lines start with their own name once more.
std::string without_name(const std::string& text, const std::string& name) {
  return text.starts_with(name + ':') ? trimmed(text.substr(name.size() + 1)) : text;
}

bool is_tone(const std::string& text) {
  static const std::regex whole(R"(\s*(\[[^\]]*\]|\([^)]*\)|<[^>]*>)\s*)");
  return std::regex_match(text, whole);
}

struct Prompt {
  std::string name, text;
};

/// The lines of the list as they stand; names that stand twice with different texts are left out and counted.
std::vector<Prompt> read_prompts(const std::filesystem::path& texts, int& unclear) {
  std::ifstream in(texts);
  require(in.good(), "read_asterisk", "cannot open ", texts);
  std::vector<Prompt> prompts;
  std::map<std::string, std::string> text_of;
  std::set<std::string> doubtful;
  std::string raw;
  for (std::size_t number = 1; std::getline(in, raw); ++number) {
    if (raw.starts_with("\xEF\xBB\xBF")) raw.erase(0, 3);
    require(first_bad_utf8(raw) == raw.npos, "read_asterisk", texts.string(), ':', number, ": the line is not UTF-8");
    const std::string line = trimmed(raw);
    const std::size_t colon = line.find(':');
    if (line.empty() || line[0] == ';' || colon == line.npos) continue;
    Prompt prompt{trimmed(line.substr(0, colon)), trimmed(line.substr(colon + 1))};
    prompt.text = without_name(prompt.text, prompt.name);
    const auto [known, fresh] = text_of.emplace(prompt.name, prompt.text);
    if (!fresh && known->second != prompt.text) doubtful.insert(prompt.name);
    if (fresh) prompts.push_back(std::move(prompt));
  }
  std::erase_if(prompts, [&](const Prompt& p) { return doubtful.contains(p.name); });
  unclear += static_cast<int>(doubtful.size());
  return prompts;
}

int sounds_without_prompt(const std::filesystem::path& sounds, const std::set<std::string>& named) {
  int count = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(sounds)) {
    const auto name = std::filesystem::relative(file.path(), sounds).replace_extension().generic_string();
    count += file.path().extension() == ".wav" && !named.contains(name);
  }
  return count;
}

}  // namespace

bool is_unclear(std::string_view given, std::string_view lang) {
  const std::string text(given);
  static const std::regex words_in_brackets(R"(\[[^\]]*[^\]\s!-@\[-`{-~][^\]]*\])"), other_prompt(R"([a-z]+(-[a-z0-9]+)+:)");
  const Reading* reading = reading_of(lang);
  if (std::regex_search(text, words_in_brackets) || std::regex_search(text, other_prompt)) return true;
  if (!reading && text.find_first_of("*#") != text.npos) return true;
  if (text.find("www.") != text.npos && (!reading || !reading->dot)) return true;
  const std::u32string letters = code_points(text);
  for (std::size_t i = 0; i + 1 < letters.size(); ++i) {
    const std::size_t next = i + (letters[i + 1] == U' ' ? 2 : 1);
    if (letters[i] == U'?' && next < letters.size() && is_letter(letters[next]) && to_lower(letters[next]) == letters[next])
      return true;
  }
  return false;
}

std::string normalize_prompt(std::string_view given, std::string_view lang) {
  static const std::regex brackets(R"(\[[^\]]*\]|\([^)]*\)|<[^>]*>)"), address(R"([Ww][Ww][Ww]\.(\w+)\.[Oo][Rr][Gg])");
  std::string text = std::regex_replace(std::string(given), brackets, " ");
  if (const Reading* reading = reading_of(lang)) {
    text = replaced(replaced(text, "*", ' ' + std::string(reading->star) + ' '), "#", ' ' + std::string(reading->pound) + ' ');
    if (reading->dot) {
      const std::string dot = ' ' + std::string(reading->dot) + ' ';
      text = std::regex_replace(text, address, "www" + dot + "$1" + dot + "org");
    }
  }
  return plain_words(text);
}

AsteriskCorpus read_asterisk(const std::filesystem::path& texts, const std::filesystem::path& sounds, const std::string& lang) {
  AsteriskCorpus corpus;
  const std::vector<Prompt> prompts = read_prompts(texts, corpus.unclear);
  require(std::filesystem::is_directory(sounds), "read_asterisk", sounds, " is no folder of sounds");
  std::vector<ManifestEntry> entries;
  std::map<std::string, std::string> first_name;  // of each normalised text
  std::set<std::string> named;
  for (const auto& [name, text] : prompts) {
    named.insert(name);
    if (is_tone(text)) {
      ++corpus.tones;
      continue;
    }
    ManifestEntry entry{.audio = sounds / (name + ".wav"), .text = normalize_prompt(text, lang), .lang = lang, .id = name};
    if (entry.text.empty()) {
      ++corpus.no_text;
      continue;
    }
    if (is_unclear(text, lang)) {
      ++corpus.unclear;
      continue;
    }
    if (!std::filesystem::exists(entry.audio)) {
      ++corpus.no_sound;
      continue;
    }
    entry.duration = audio_info(entry.audio).seconds();
    const auto length = static_cast<double>(code_points(entry.text).size()), rate = length / entry.duration;
    if (entry.duration > 40 || rate > 24 || (length > 20 && rate < 4)) {
      ++corpus.unusable;
      continue;
    }
    const auto [group, fresh] = first_name.emplace(entry.text, name);
    if (!fresh) group->second = std::min(group->second, name);
    entries.push_back(std::move(entry));
  }
  corpus.no_prompt = sounds_without_prompt(sounds, named);
  require(!entries.empty(), "read_asterisk", texts, " names no sound in ", sounds);
  for (ManifestEntry& entry : entries) {
    const bool held = md5_modulo(first_name.at(entry.text), 10) == 0;
    (held ? corpus.heldout : corpus.train).push_back(std::move(entry));
  }
  return corpus;
}

AsteriskCorpus write_asterisk_manifests(const std::filesystem::path& texts, const std::filesystem::path& sounds,
                                        const std::filesystem::path& folder, const std::string& lang) {
  AsteriskCorpus corpus = read_asterisk(texts, sounds, lang);
  std::filesystem::create_directories(folder);
  write_manifest(folder / "train.jsonl", corpus.train);
  write_manifest(folder / "heldout.jsonl", corpus.heldout);
  return corpus;
}

}  // namespace chorus
