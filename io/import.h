// Corpora as they lie on disks, turned into manifests.
#pragma once
#include <chorus/io/check.h>

namespace chorus {

/// Entries that can be used, with absolute paths and durations, and why others can't be.
struct Imported {
  std::vector<ManifestEntry> entries;
  std::vector<Finding> left_out;
};

/// Sound files in `audio` and below, with the texts of a list: lines "name<tab>text", "name: text" or "name text" (';' and '#'
/// start comments), or a .csv or .tsv file whose header names a sound and a text column (audio_filepath, path, file, filename,
/// name, id; text, sentence, transcript, transcription; perhaps lang, language, locale; speaker, speaker_id, client_id). A name
/// is a path in `audio`, with or without its extension, or the stem of one file somewhere below.
Imported import_folder(const std::filesystem::path& audio, const std::filesystem::path& list);

/// A Kaldi data folder: wav.scp and text, where there are any also segments, utt2spk and utt2lang. Commands in wav.scp are an
/// error: nothing is run.
Imported import_kaldi(const std::filesystem::path& folder);

/// Tar shards by WebDataset's convention: members that agree up to the first dot of their file name are one sample, of a sound
/// (.wav .flac .ogg .opus .mp3) and a .txt or a .json with "text" and perhaps "lang", "speaker", "id".
Imported import_tars(std::span<const std::filesystem::path> tars);

/// Gives every entry its duration; leaves out what has no text, no readable sound or a range outside it.
void finish_import(Imported& imported);

/// Entries of equal text (plain_words) stay together: held out where md5(text) modulo a million lies below that share. It
/// depends on nothing but the text, so it stays as it is when a corpus grows.
bool is_held_out(const ManifestEntry& entry, double share);

}  // namespace chorus
