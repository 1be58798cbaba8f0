// Recordings of a manifest, whether they are files of their own or members of tar files ("shards").
#pragma once
#include <chorus/io/audio.h>
#include <chorus/io/audio_stream.h>
#include <chorus/io/manifest.h>
#include <chorus/io/tar.h>

namespace chorus {

/// "audio_{0..7}.tar" or, as shells leave alone, "audio__OP_0..7_CL_.tar": the eight paths, in order. Numbers keep the width
/// of a first number with leading zeros. Several ranges multiply, the last one running fastest. A range that is none is an
/// error.
std::vector<std::filesystem::path> expand_braces(const std::string& pattern);

/// The shard's number by NeMo's rule: the last digits of its file name before ".tar"; -1 without any.
std::int64_t shard_number(const std::filesystem::path& tar);

/// Finds the place of every entry that has a `tar`, through each shard's index. Entries that aren't found keep none: reading
/// them is an error. Returns what is to be told, a line per shard: missing, no tar, damaged, or without some of the members.
std::vector<std::string> locate_members(std::span<ManifestEntry> entries);

/// What the sound file's header says: of the whole file, not of the entry's range.
AudioInfo audio_info(const ManifestEntry& entry);
/// The entry's range of samples at `sample_rate`. Errors name the file, for tarred ones as "<shard>:<member>".
std::vector<float> read_audio(const ManifestEntry& entry, int sample_rate);
/// The same piece by piece. A member of a tar file is decoded whole first.
AudioStream open_audio(const ManifestEntry& entry, int sample_rate);
/// How errors and reports call its sound.
std::filesystem::path audio_name(const ManifestEntry& entry);

}  // namespace chorus
