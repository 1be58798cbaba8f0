// What a user wants transcribed: files, folders, lists, manifests and pipes.
#pragma once
#include <chorus/apps/transcription.h>
#include <chorus/io/pipe_sound.h>

namespace chorus {

struct TranscriptSource {
  ManifestEntry entry;
  std::string line{};      ///< of the manifest it comes from
  bool from_pipe = false;  ///< standard input, which can't seek
  std::string name() const { return entry.audio.string(); }
};

/// Sound files; folders, whose sound files are taken in order of their paths, those of sub-folders too; `@file`, a file that
/// names one of these in each line; `-`, standard input. Errors: a folder without sound files, standard input twice.
std::vector<TranscriptSource> list_sources(const std::vector<std::string>& inputs);
/// The entries of a manifest, with reference or without; lines that can't be used are told to `report` and left out.
std::vector<TranscriptSource> list_manifest(const std::filesystem::path& manifest, const BadLine& report);

/// Of entries that were read and filtered elsewhere.
std::vector<TranscriptSource> sources_of(std::vector<ManifestEntry> entries);

/// `raw` describes what comes from standard input; without it that is a WAV stream or a file that was redirected.
TranscriptionJob job_of(const TranscriptSource& source, int sample_rate, const std::optional<RawFormat>& raw = {});

/// The line of a NeMo output manifest: what the manifest said, or the path and the duration, and `pred_text`; `error` where
/// there is one.
std::string output_line(const TranscriptSource& source, double seconds, const std::string& text, const std::string& problem);

}  // namespace chorus
