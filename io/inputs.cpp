#include <chorus/core/error.h>
#include <chorus/io/inputs.h>
#include <chorus/io/shards.h>

#include <map>

namespace chorus {
namespace {

/// One manifest for all shards: entries say theirs by number, as file names do.
void assign_shards(std::span<ManifestEntry> entries, const std::vector<std::filesystem::path>& tars) {
  if (tars.size() == 1) {
    for (ManifestEntry& entry : entries) entry.tar = tars[0];
    return;
  }
  std::map<std::int64_t, std::filesystem::path> by_number;
  for (const auto& tar : tars) {
    const std::int64_t number = shard_number(tar);
    require(number >= 0, "data", tar, " has no number in its name that a shard_id could mean");
    const bool fresh = by_number.emplace(number, tar).second;
    require(fresh, "data", tar, " and ", by_number[number], " have the same shard number ", number);
  }
  for (ManifestEntry& entry : entries) {
    require(entry.shard >= 0, "data", place(entry), ": the entry of ", entry.audio,
            " has no shard_id, and its sound may be in any of ", tars.size(), " tar files");
    const auto it = by_number.find(entry.shard);
    require(it != by_number.end(), "data", place(entry), ": the entry of ", entry.audio, " has shard_id ", entry.shard,
            "; the tar files have ", by_number.begin()->first, " to ", by_number.rbegin()->first);
    entry.tar = it->second;
  }
}

}  // namespace

std::vector<std::filesystem::path> manifests_of(const InputConfig& input) { return expand_braces(input.manifest_filepath); }

std::vector<ManifestEntry> read_input(const InputConfig& input, Content content,
                                      const std::function<void(const std::string&)>& say, int source, const BadLine& report) {
  const std::vector<std::filesystem::path> manifests = manifests_of(input);
  std::vector<std::filesystem::path> tars;
  if (!input.tarred_audio_filepaths.empty() && content != Content::text) tars = expand_braces(input.tarred_audio_filepaths);
  require(tars.empty() || manifests.size() == 1 || manifests.size() == tars.size(), "data", input.manifest_filepath, " names ",
          manifests.size(), " manifests and ", input.tarred_audio_filepaths, ' ', tars.size(),
          " tar files; expected one manifest or as many as tar files");
  std::vector<ManifestEntry> entries;
  for (std::size_t m = 0; m < manifests.size(); ++m) {
    std::vector<ManifestEntry> part = read_manifest(manifests[m], report, tars.empty() ? content : Content::tarred);
    if (!tars.empty() && manifests.size() == tars.size())
      for (ManifestEntry& entry : part) entry.tar = tars[m];
    else if (!tars.empty())
      assign_shards(part, tars);
    entries.insert(entries.end(), std::make_move_iterator(part.begin()), std::make_move_iterator(part.end()));
  }
  for (const std::string& line : locate_members(entries))
    if (say) say(line);
  for (ManifestEntry& entry : entries) {
    entry.source = source;
    if (entry.lang.empty()) entry.lang = input.lang;
  }
  return entries;
}

}  // namespace chorus
