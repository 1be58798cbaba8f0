// Sound from pipes, which can't seek and often don't know how long they are.
#pragma once
#include <chorus/io/audio_stream.h>

namespace chorus {

/// What samples without a header are.
struct RawFormat {
  std::string encoding = "s16le";  ///< or "f32le"
  int sample_rate = 0;             ///< Hz
  int channels = 1;
};

/// Reads a WAV stream (8 to 32 bit PCM, 32 and 64 bit float, WAVE_FORMAT_EXTENSIBLE of these) from an open descriptor, which
/// stays open. A data chunk of length 0 or of nearly 2^31 or 2^32 bytes, as ffmpeg and sox write into pipes, reaches to the
/// end of the stream. `name` stands for it in errors, which say what the header has and what was expected.
std::unique_ptr<SoundSource> wav_from_pipe(int descriptor, const std::string& name);
/// Reads samples without a header.
std::unique_ptr<SoundSource> raw_from_pipe(int descriptor, const std::string& name, const RawFormat& format);

}  // namespace chorus
