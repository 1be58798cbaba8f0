// Manifests of speech corpora: NeMo's JSON lines.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace chorus {

/// One line: {"audio_filepath": ..., "text": ..., "duration": ..., "offset": ..., "lang": ..., "id": ...}.
struct ManifestEntry {
  std::filesystem::path audio;  ///< absolute, or as the reader can open it
  std::string text;
  double offset = 0;         ///< seconds into the file
  double duration = -1;      ///< seconds; < 0: to the end of the file
  std::string lang{}, id{};  ///< optional
};

/// Relative audio paths are relative to the manifest's folder. Fields that are not ours are ignored, as NeMo does;
/// lines with "_skipme": true and blank lines are skipped. Every error names file, line, field and value: no JSON object,
/// audio_filepath or text missing, a field of the wrong type, a negative offset, a duration that is not positive.
std::vector<ManifestEntry> read_manifest(const std::filesystem::path& file);

/// Writes audio paths as they are; offset and duration only where set.
void write_manifest(const std::filesystem::path& file, std::span<const ManifestEntry> entries);

/// Gives entries without a duration the one that their sound file's header says.
void fill_durations(std::span<ManifestEntry> entries);

}  // namespace chorus
