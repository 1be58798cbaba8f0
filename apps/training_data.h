// From what a manifest lists to what a run can use, with everything left out told and counted.
#pragma once
#include <chorus/apps/transcript_input.h>
#include <chorus/io/batches.h>
#include <chorus/io/inputs.h>

namespace chorus {

using Say = std::function<void(const std::string&)>;

struct UsableEntries {
  std::vector<ManifestEntry> entries;  ///< with known durations
  DropCounts drops;
  std::string first;  ///< the first thing told, for errors; empty if nothing was left out
};

/// Leaves out entries with the id of an earlier one and, where `sound` (their durations are then needed), those whose sound
/// file's header can't be read. The first few of each kind are told, the others counted.
UsableEntries usable_entries(std::vector<ManifestEntry> all, bool sound, const Say& say);

/// Reads an input's manifests and leaves out what can't be used; bad lines are told and counted too, or with `skip_bad_lines` =
/// false an error. Text is taken as it is. An error also if nothing is left.
UsableEntries read_usable(const InputConfig& input, bool skip_bad_lines, Content content, const Say& say, int source = 0);
/// All inputs, one after another; each must have something left.
UsableEntries read_usable(std::span<const InputConfig> inputs, bool skip_bad_lines, Content content, const Say& say);
UsableEntries read_usable(const std::filesystem::path& manifest, bool skip_bad_lines, Content content, const Say& say);

/// XXH3-128 of the contents of all manifests; with several, of their digests in order.
std::string manifests_digest(std::span<const InputConfig> inputs);

/// XXH3-128 of which entries these are: equal where the same of the same manifests can be used.
std::string usable_digest(std::span<const ManifestEntry> training, std::span<const TranscriptSource> validation);

}  // namespace chorus
