// Where a run's recordings come from: one manifest or several, with sound in files or in tar shards.
#pragma once
#include <chorus/core/config/check.h>
#include <chorus/io/manifest.h>

#include <cmath>
#include <functional>
#include <optional>

namespace chorus {

/// One input, in the words of NeMo's `input_cfg`.
struct InputConfig {
  std::string manifest_filepath, tarred_audio_filepaths, lang;
  std::optional<double> weight;

  template <class V>
  void fields(V&& v) {
    v("manifest_filepath", manifest_filepath, "manifest; {0..7} and _OP_0..7_CL_ stand for several", required_key, not_empty());
    v("tarred_audio_filepaths", tarred_audio_filepaths,
      "tar files that hold its sound, one per manifest or told apart by shard_id; empty: files, or as the manifest says");
    v("weight", weight, "how often it is drawn, beside the others' weights; all or none say it, none: all alike",
      satisfies([](double w) { return std::isfinite(w) && w > 0; }, "a finite number greater than 0"));
    v("lang", lang, "of entries that say none");
  }
};

/// The manifests that an input names, in order.
std::vector<std::filesystem::path> manifests_of(const InputConfig& input);

/// All entries, in order, with places in tar files; `source` becomes their number. Numbers of manifests and shards that don't
/// fit, a shard_id without a shard or missing where several shards could be meant: errors, with file and line where there is
/// one. Entries whose sound can't be found stay, and fail when they are read: what an epoch holds doesn't depend on disks.
/// Shards that lack some are told to `say`.
std::vector<ManifestEntry> read_input(const InputConfig& input, Content content,
                                      const std::function<void(const std::string&)>& say, int source = 0,
                                      const BadLine& report = {});

}  // namespace chorus
