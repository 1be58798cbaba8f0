// Manifests of speech and text corpora: NeMo's JSON lines.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace chorus {

/// What a manifest is read for.
enum class Content {
  speech,  ///< sound and its text
  text,    ///< text alone
  sound,   ///< sound, whose text may be missing: for transcription
  tarred   ///< speech whose names are members of tar files that are given elsewhere
};

/// One line: {"audio_filepath": ..., "text": ..., "duration": ..., "offset": ..., "lang": ..., "id": ..., "speaker": ...}.
struct ManifestEntry {
  std::filesystem::path audio;  ///< absolute, or as the reader can open it; of a tarred entry: the member's name
  std::string text;
  double offset = 0;                              ///< seconds into the file
  double duration = -1;                           ///< seconds; < 0: to the end of the file
  std::string lang{}, id{};                       ///< optional
  std::int64_t line = 0;                          ///< in its manifest; 0: it was read from none
  std::shared_ptr<const std::string> manifest{};  ///< one name for all entries of a file
  std::string speaker{};                          ///< optional
  int source = 0;                                 ///< which input of a mixture it belongs to
  // Sound inside a tar file (io/shards.h finds its place):
  std::filesystem::path tar{};                  ///< the shard; empty: `audio` is a file of its own
  std::int64_t shard = -1;                      ///< number of the shard, where the manifest says one
  std::uint64_t tar_offset = 0, tar_bytes = 0;  ///< where the sound file lies in it; 0: not found
};

/// "train.jsonl:3", for messages; the sound file of an entry that was read from no manifest.
std::string place(const ManifestEntry& entry);

/// Told of a line that can't be used; the text names file, line, field and value.
using BadLine = std::function<void(const std::string& problem)>;

/// Relative audio paths are relative to the manifest's folder. Fields that are not ours are ignored, as NeMo does;
/// lines with "_skipme": true and blank lines are skipped. Bad lines (broken UTF-8, no JSON object, audio_filepath or text
/// missing, a field of the wrong type, a negative offset, a duration that is not positive) are told to `report` and left out;
/// without `report`, one error lists the first twenty. Errors in any case: a file that can't be read, a folder, a file in
/// UTF-16 or compressed, a line of more than a mebibyte. Content::text needs no audio_filepath and leaves the sound of lines
/// that have one aside; Content::sound gives entries without text an empty one.
///
/// Sound in tar files: with "tarred_audio_filepath" (relative to the manifest's folder) `audio_filepath` names a member of
/// that file. With Content::tarred every line names a member; the shards are given elsewhere and told apart by "shard_id".
std::vector<ManifestEntry> read_manifest(const std::filesystem::path& file, const BadLine& report = {},
                                         Content content = Content::speech);

/// Writes audio paths as they are; they, offset and duration only where set. The file appears whole or not at all.
void write_manifest(const std::filesystem::path& file, std::span<const ManifestEntry> entries);

/// Gives entries without a duration the one that their sound file's header says.
void fill_durations(std::span<ManifestEntry> entries);

}  // namespace chorus
