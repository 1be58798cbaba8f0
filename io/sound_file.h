// Sound files as libsndfile opens them: regular files whose headers can be believed. For the readers of this folder.
#pragma once
#include <sndfile.h>

#include <filesystem>
#include <memory>
#include <string>

namespace chorus {

struct CloseSoundFile {
  void operator()(SNDFILE* file) const { sf_close(file); }
};
using SoundFile = std::unique_ptr<SNDFILE, CloseSoundFile>;

/// What libsndfile opened as `path`, or an error of `op`: no sound, or a rate or a number of channels that is none.
SoundFile believable(const char* op, SoundFile file, const SF_INFO& info, const std::filesystem::path& path);

/// Opens a file. Errors besides: it doesn't exist, is a folder, a pipe or empty.
SoundFile open_sound_file(const char* op, const std::filesystem::path& path, SF_INFO& info);

/// Says that a WAV file is shorter than its header promises (" is truncated: ..."), or nothing.
std::string truncation(SNDFILE* file);

}  // namespace chorus
