// Sound as a stream: recordings of any length, and pipes, in bounded memory.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace chorus {

/// Where samples come from, at their own rate, averaged over channels.
class SoundSource {
 public:
  virtual ~SoundSource() = default;
  /// Fills `mono` and returns how many samples it got; fewer than asked for only at the end.
  virtual std::size_t read(std::span<float> mono) = 0;
  int sample_rate() const { return sample_rate_; }
  /// Why the sound ended before it should have; empty when it is whole (so far).
  const std::string& broken() const { return broken_; }

 protected:
  int sample_rate_ = 0;
  std::string broken_;
};

/// Mono samples at one rate, piece by piece: joined they equal `read_audio` of the same file. Sound that ends early (a
/// truncated file, a sample that is not finite) is no exception: what came before is given, and `broken` says why it ended.
class AudioStream {
 public:
  /// [offset, offset + duration) seconds of a file (duration < 0: to the end). Throws like `read_audio`, except for what is
  /// found out while reading.
  static AudioStream open(const std::filesystem::path& file, int sample_rate, double offset = 0, double duration = -1);
  AudioStream(std::unique_ptr<SoundSource> source, int sample_rate);
  AudioStream(AudioStream&&) noexcept;
  ~AudioStream();

  /// Appends `count` samples to `out` and returns how many there were; fewer only at the end.
  std::size_t read(std::vector<float>& out, std::size_t count);
  int sample_rate() const { return sample_rate_; }
  const std::string& broken() const { return source_->broken(); }

 private:
  struct Resampler;
  void fill();

  std::unique_ptr<SoundSource> source_;
  int sample_rate_;
  std::unique_ptr<Resampler> resampler_;  // none when the rates are equal
  std::vector<float> block_, ready_;      // samples of the source, and of ours from `taken_` on
  std::size_t taken_ = 0;
  std::int64_t heard_ = 0, made_ = 0;  // samples of the source, and of ours
  bool ended_ = false;
};

}  // namespace chorus
