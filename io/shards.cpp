#include <chorus/core/error.h>
#include <chorus/io/shards.h>

#include <algorithm>
#include <charconv>
#include <map>

namespace chorus {
namespace {

std::vector<std::byte> content(const ManifestEntry& entry) {
  require(std::filesystem::exists(entry.tar), "read_audio", entry.tar, ", which should hold ", entry.audio, ", does not exist");
  require(entry.tar_offset > 0, "read_audio", entry.tar, " has no member ", entry.audio, " that can be read");
  return read_tar_member(entry.tar, {entry.audio.string(), entry.tar_offset, entry.tar_bytes});
}

/// Samples that are already there.
class SoundInMemory : public SoundSource {
 public:
  SoundInMemory(std::vector<float> samples, int sample_rate) : samples_(std::move(samples)) { sample_rate_ = sample_rate; }
  std::size_t read(std::span<float> mono) override {
    const std::size_t count = std::min(mono.size(), samples_.size() - at_);
    std::copy_n(samples_.begin() + static_cast<std::ptrdiff_t>(at_), count, mono.begin());
    at_ += count;
    return count;
  }

 private:
  std::vector<float> samples_;
  std::size_t at_ = 0;
};

struct Range {
  std::size_t first, last, width;
};
/// Of "<first>..<last>"; `all` is for the error.
Range parse_range(std::string_view text, const std::string& all) {
  const std::size_t dots = text.find("..");
  Range range{};
  bool good = dots != text.npos && dots > 0 && dots < 10 && text.size() - dots <= 11;
  if (good) {
    const std::string_view first = text.substr(0, dots), last = text.substr(dots + 2);
    const auto a = std::from_chars(first.data(), first.data() + first.size(), range.first);
    const auto b = std::from_chars(last.data(), last.data() + last.size(), range.last);
    good = a.ec == std::errc{} && a.ptr == first.data() + first.size() && b.ec == std::errc{} &&
           b.ptr == last.data() + last.size() && range.first <= range.last && range.last - range.first < 1000000;
    range.width = first.size() > 1 && first[0] == '0' ? first.size() : 1;
  }
  require(good, "expand_braces", '\'', all, "': '", text, "' is no range; expected {first..last} or _OP_first..last_CL_");
  return range;
}

}  // namespace

std::vector<std::filesystem::path> expand_braces(const std::string& pattern) {
  std::string text = pattern;
  for (const auto& [word, brace] : {std::pair{"_OP_", "{"}, std::pair{"_CL_", "}"}})
    for (std::size_t at; (at = text.find(word)) != text.npos;) text.replace(at, 4, brace);
  std::vector<std::string> done = {""};
  while (!text.empty()) {
    const std::size_t open = std::min(text.find('{'), text.size());
    for (std::string& path : done) path += text.substr(0, open);
    text.erase(0, open);
    if (text.empty()) break;
    const std::size_t close = text.find('}');
    require(close != text.npos, "expand_braces", '\'', pattern, "' has a '{' that is not closed");
    const Range range = parse_range(std::string_view(text).substr(1, close - 1), pattern);
    std::vector<std::string> longer;
    require(done.size() * (range.last - range.first + 1) <= 1000000, "expand_braces", '\'', pattern,
            "' gives over 1000000 paths");
    for (const std::string& path : done)
      for (std::size_t i = range.first; i <= range.last; ++i) {
        const std::string number = std::to_string(i);
        longer.push_back(path + std::string(range.width > number.size() ? range.width - number.size() : 0, '0') + number);
      }
    done = std::move(longer);
    text.erase(0, close + 1);
  }
  return {done.begin(), done.end()};
}

std::int64_t shard_number(const std::filesystem::path& tar) {
  const std::string stem = tar.stem().string();
  const std::size_t last = stem.find_last_of("0123456789");
  if (last == stem.npos) return -1;
  const std::size_t before = stem.find_last_not_of("0123456789", last);
  std::int64_t number = -1;
  const char* first = stem.data() + (before == stem.npos ? 0 : before + 1);
  return std::from_chars(first, stem.data() + last + 1, number).ec == std::errc{} ? number : -1;
}

std::vector<std::string> locate_members(std::span<ManifestEntry> entries) {
  std::map<std::filesystem::path, std::vector<ManifestEntry*>> by_shard;
  for (ManifestEntry& entry : entries)
    if (!entry.tar.empty()) by_shard[entry.tar].push_back(&entry);
  std::vector<std::string> told;
  for (const auto& [tar, here] : by_shard) {
    TarIndex index;
    try {
      index = tar_index(tar);
    } catch (const Error& error) {
      index.problem = error.what();
    }
    std::unordered_map<std::string, const TarMember*> members;
    for (const TarMember& member : index.members) members[member.name] = &member;  // of equal names the last, as tar unpacks
    std::size_t missing = 0;
    std::string first;
    for (ManifestEntry* entry : here) {
      std::string name = entry->audio.string();
      if (name.starts_with("./")) name.erase(0, 2);
      const auto it = members.find(name);
      if (it == members.end()) {
        if (missing++ == 0) first = name;
        continue;
      }
      entry->tar_offset = it->second->offset;
      entry->tar_bytes = it->second->bytes;
    }
    if (missing == 0 && index.problem.empty()) continue;
    std::string line = index.problem.empty() ? tar.string() + " lacks members" : index.problem;
    line += "; " + std::to_string(missing) + " of its " + std::to_string(here.size()) + " recordings can't be read";
    if (missing > 0) line += ", the first is " + first;
    told.push_back(std::move(line));
  }
  return told;
}

std::filesystem::path audio_name(const ManifestEntry& entry) {
  if (entry.tar.empty()) return entry.audio;
  return entry.tar.string() + ':' + entry.audio.string();
}

AudioInfo audio_info(const ManifestEntry& entry) {
  return entry.tar.empty() ? audio_info(entry.audio) : audio_info(content(entry), audio_name(entry));
}

std::vector<float> read_audio(const ManifestEntry& entry, int sample_rate) {
  if (entry.tar.empty()) return read_audio(entry.audio, sample_rate, entry.offset, entry.duration);
  return read_audio(content(entry), audio_name(entry), sample_rate, entry.offset, entry.duration);
}

AudioStream open_audio(const ManifestEntry& entry, int sample_rate) {
  if (entry.tar.empty()) return AudioStream::open(entry.audio, sample_rate, entry.offset, entry.duration);
  const int rate = audio_info(entry).sample_rate;
  return {std::make_unique<SoundInMemory>(read_audio(entry, rate), rate), sample_rate};
}

}  // namespace chorus
