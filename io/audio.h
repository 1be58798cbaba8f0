// Recorded sound as mono float samples in [-1, 1]: reading (libsndfile), resampling (soxr) and change of speed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace chorus {

/// Beyond any sound, also in files that hold integers as floats: full scale is 1. Larger samples are errors, as those that are
/// not finite.
inline constexpr float loudest_sample = 1e10F;

struct AudioInfo {
  std::int64_t frames = 0;  ///< samples of each channel
  int sample_rate = 0;      ///< Hz
  int channels = 0;
  double seconds() const { return static_cast<double>(frames) / sample_rate; }
};

/// What the header of a sound file says. Errors: the file is missing, is no sound file, ends before its header says, or the
/// header says no sane rate (1 to 768 kHz) or number of channels (1 to 64).
AudioInfo audio_info(const std::filesystem::path& file);

/// Reads [offset, offset + duration) seconds (duration < 0: to the end) at `sample_rate` Hz. Any format of libsndfile
/// (WAV, FLAC, OGG ...); several channels are averaged. Errors name the file and the values: missing or truncated file,
/// a range outside it, no samples at all, a sample that is not finite, more than 2^28 samples (4.6 hours at 16 kHz).
std::vector<float> read_audio(const std::filesystem::path& file, int sample_rate, double offset = 0, double duration = -1);

/// The same of a sound file that lies in memory; `name` stands for it in errors.
AudioInfo audio_info(std::span<const std::byte> content, const std::filesystem::path& name);
std::vector<float> read_audio(std::span<const std::byte> content, const std::filesystem::path& name, int sample_rate,
                              double offset = 0, double duration = -1);

/// Band-limited change of rate; round(n * to / from) samples. Equal rates return the input.
std::vector<float> resample(std::span<const float> samples, int from, int to);

/// Plays `factor` times as fast by linear interpolation, which also moves the pitch: output i is the input at i * factor,
/// floor(n / factor) samples.
std::vector<float> change_speed(std::span<const float> samples, double factor);

/// Writes 16-bit mono WAV; samples outside [-1, 1) are clipped. The file appears whole or not at all.
void write_wav(const std::filesystem::path& file, std::span<const float> samples, int sample_rate);

}  // namespace chorus
