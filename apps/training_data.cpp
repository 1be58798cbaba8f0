#include <chorus/apps/training_data.h>
#include <chorus/core/error.h>
#include <chorus/core/posix_file.h>
#include <chorus/io/digest.h>
#include <chorus/io/shards.h>

#include <unordered_map>

namespace chorus {
namespace {

/// Tells the first few of a kind and at the end how many more there were: a broken corpus must not flood the log.
class Teller {
 public:
  Teller(std::string kind, const Say& say) : kind_(std::move(kind)), say_(say) {}
  ~Teller() {
    if (count_ > most && say_) say_(kind_ + ": and " + std::to_string(count_ - most) + " more");
  }
  Teller(const Teller&) = delete;
  Teller& operator=(const Teller&) = delete;

  void operator()(const std::string& what) {
    if (count_ == 0) first_ = what;
    if (++count_ <= most && say_) say_(kind_ + ": " + what);
  }
  std::int64_t count() const { return count_; }
  const std::string& first() const { return first_; }

 private:
  static constexpr std::int64_t most = 10;
  std::string kind_, first_;
  const Say& say_;
  std::int64_t count_ = 0;
};

}  // namespace

UsableEntries usable_entries(std::vector<ManifestEntry> all, bool sound, const Say& say) {
  UsableEntries out;
  Teller duplicates("left out a duplicate", say), unreadable("left out a recording", say);
  std::unordered_map<std::string, std::string> places;  // of ids
  for (ManifestEntry& entry : all) {
    if (!entry.id.empty()) {
      const auto [first, fresh] = places.emplace(entry.id, place(entry));
      if (!fresh) {
        duplicates(place(entry) + ": id '" + entry.id + "' is that of " + first->second + ", expected one of its own");
        continue;
      }
    }
    try {
      if (sound) {
        fill_durations(std::span(&entry, 1));
        require(entry.duration > 0, "data", audio_name(entry).string(), " has ", entry.duration, " seconds from offset ",
                entry.offset, " on");
      }
      out.entries.push_back(std::move(entry));
    } catch (const Error& error) {
      unreadable(place(entry) + ": " + error.what());
    }
  }
  out.drops.duplicates = duplicates.count();
  out.drops.unreadable = unreadable.count();
  out.first = unreadable.count() ? unreadable.first() : duplicates.first();
  return out;
}

UsableEntries read_usable(const InputConfig& input, bool skip_bad_lines, Content content, const Say& say, int source) {
  Teller bad("left out a line", say);
  BadLine report;
  if (skip_bad_lines) report = [&](const std::string& problem) { bad(problem); };
  UsableEntries out = usable_entries(read_input(input, content, say, source, report), content == Content::speech, say);
  out.drops.bad_lines = bad.count();
  if (bad.count()) out.first = bad.first();
  require(!out.entries.empty(), "data", input.manifest_filepath, " has no entry that can be used: ", out.drops.report(),
          out.first.empty() ? "" : "; the first: ", out.first);
  return out;
}

UsableEntries read_usable(std::span<const InputConfig> inputs, bool skip_bad_lines, Content content, const Say& say) {
  UsableEntries out;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    UsableEntries part = read_usable(inputs[i], skip_bad_lines, content, say, static_cast<int>(i));
    out.entries.insert(out.entries.end(), std::make_move_iterator(part.entries.begin()),
                       std::make_move_iterator(part.entries.end()));
    out.drops += part.drops;
    if (out.first.empty()) out.first = part.first;
  }
  return out;
}

UsableEntries read_usable(const std::filesystem::path& manifest, bool skip_bad_lines, Content content, const Say& say) {
  InputConfig input;
  input.manifest_filepath = manifest.string();
  return read_usable(input, skip_bad_lines, content, say);
}

std::string manifests_digest(std::span<const InputConfig> inputs) {
  std::string all;
  for (const InputConfig& input : inputs)
    for (const auto& file : manifests_of(input)) all += file_digest(PosixFile::open(file));
  return all.size() == 32 ? all : digest(all.data(), all.size());
}

std::string usable_digest(std::span<const ManifestEntry> training, std::span<const TranscriptSource> validation) {
  Hasher hasher;
  const auto add = [&](const ManifestEntry& entry) {
    const std::string text = place(entry) + '\n';
    hasher.update(text.data(), text.size());
    hasher.update(&entry.duration, sizeof entry.duration);
  };
  for (const ManifestEntry& entry : training) add(entry);
  for (const TranscriptSource& source : validation) add(source.entry);
  return hasher.hex();
}

}  // namespace chorus
