#include <chorus/core/error.h>
#include <chorus/io/audio.h>
#include <chorus/io/pipe_sound.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <system_error>

namespace chorus {
namespace {

enum class Encoding { u8, s16, s24, s32, f32, f64 };

std::size_t bytes_of(Encoding encoding) {
  switch (encoding) {
    case Encoding::u8: return 1;
    case Encoding::s16: return 2;
    case Encoding::s24: return 3;
    case Encoding::f64: return 8;
    default: return 4;
  }
}

/// Little-endian numbers from any address.
template <class T>
T number(const unsigned char* at) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

/// In [-1, 1], as libsndfile scales.
float sample(Encoding encoding, const unsigned char* at) {
  switch (encoding) {
    case Encoding::u8: return static_cast<float>(at[0] - 128) / 128;
    case Encoding::s16: return static_cast<float>(number<std::int16_t>(at)) / 0x1p15f;
    case Encoding::s24: {
      const std::uint32_t high = (std::uint32_t{at[0]} << 8) | (std::uint32_t{at[1]} << 16) | (std::uint32_t{at[2]} << 24);
      return static_cast<float>(static_cast<std::int32_t>(high)) / 0x1p31f;
    }
    case Encoding::s32: return static_cast<float>(number<std::int32_t>(at)) / 0x1p31f;
    case Encoding::f32: return number<float>(at);
    default: return static_cast<float>(number<double>(at));
  }
}

class PipeSource : public SoundSource {
 public:
  PipeSource(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {}

  void start_raw(const RawFormat& format) {
    require(format.encoding == "s16le" || format.encoding == "f32le", "raw sound", "encoding '", format.encoding,
            "'; s16le and f32le are there");
    require(format.sample_rate > 0, "raw sound", name_, ": a sample rate of ", format.sample_rate,
            " Hz; samples without a header need one");
    require(format.channels > 0, "raw sound", name_, ": ", format.channels, " channels");
    encoding_ = format.encoding == "s16le" ? Encoding::s16 : Encoding::f32;
    sample_rate_ = format.sample_rate;
    channels_ = static_cast<std::size_t>(format.channels);
  }

  void start_wav() {
    unsigned char head[12];
    header_bytes(head, 12, "the first 12 bytes");
    require(tag(head) == "RIFF" && tag(head + 8) == "WAVE", "WAV stream", name_, " starts with '", printable(head),
            "', expected RIFF ... WAVE: a pipe must carry WAV, or samples without header that are described (--raw)");
    bool described = false;
    while (true) {
      unsigned char chunk[8];
      header_bytes(chunk, 8, "a chunk");
      const auto length = number<std::uint32_t>(chunk + 4);
      if (tag(chunk) == "data") {
        require(described, "WAV stream", name_, " has its data before its fmt chunk");
        const bool unknown = length == 0 || length >= 0x7FFFF000;
        left_ = unknown ? std::numeric_limits<std::uint64_t>::max() : length;
        promised_ = unknown ? 0 : length;
        return;
      }
      if (tag(chunk) == "fmt ") {
        require(length >= 16 && length <= 1024, "WAV stream", name_, ": a fmt chunk of ", length, " bytes, expected 16 to 40");
        std::vector<unsigned char> fmt(length + length % 2);
        header_bytes(fmt.data(), fmt.size(), "the fmt chunk");
        describe(fmt);
        described = true;
        continue;
      }
      skip(std::uint64_t{length} + length % 2);
    }
  }

  std::size_t read(std::span<float> mono) override {
    if (!broken_.empty()) return 0;
    const std::size_t frame = bytes_of(encoding_) * channels_;
    const auto wanted = std::min<std::uint64_t>(mono.size() * frame, left_ / frame * frame);
    bytes_.resize(wanted);
    const std::size_t got = wanted > 0 ? take(bytes_.data(), wanted) : 0;
    heard_ += got;
    if (left_ != std::numeric_limits<std::uint64_t>::max()) left_ -= got;
    if (got < wanted && broken_.empty()) {
      if (promised_ > 0)
        broken_ = name_ + " ended after " + std::to_string(heard_) + " bytes of sound; its header promises " +
                  std::to_string(promised_);
      else if (got % frame != 0)
        broken_ =
            name_ + " ended within a sample: " + std::to_string(heard_) + " bytes are no multiple of " + std::to_string(frame);
      else if (heard_ == 0)
        broken_ = name_ + " has no samples";
    }
    const std::size_t frames = got / frame;
    for (std::size_t i = 0; i < frames; ++i) {
      float sum = 0;
      for (std::size_t c = 0; c < channels_; ++c) sum += sample(encoding_, bytes_.data() + i * frame + c * bytes_of(encoding_));
      mono[i] = sum / static_cast<float>(channels_);
      if (!(std::abs(mono[i]) <= loudest_sample)) {
        broken_ = name_ + ": sample " + std::to_string(heard_frames_ + i) + " is " + std::to_string(mono[i]) +
                  "; nothing was heard from there on";
        return i;
      }
    }
    heard_frames_ += frames;
    return frames;
  }

 private:
  static std::string_view tag(const unsigned char* at) { return {reinterpret_cast<const char*>(at), 4}; }
  static std::string printable(const unsigned char* at) {
    std::string text(tag(at));
    for (char& c : text) c = c >= ' ' && c <= '~' ? c : '?';
    return text;
  }

  void describe(const std::vector<unsigned char>& fmt) {
    auto code = number<std::uint16_t>(fmt.data());
    const auto channels = number<std::uint16_t>(fmt.data() + 2);
    const auto rate = number<std::uint32_t>(fmt.data() + 4);
    const auto block = number<std::uint16_t>(fmt.data() + 12), bits = number<std::uint16_t>(fmt.data() + 14);
    if (code == 0xFFFE && fmt.size() >= 26) code = number<std::uint16_t>(fmt.data() + 24);  // its GUID starts with the code
    const int bytes = channels > 0 ? block / channels : 0;
    const bool pcm = code == 1, real = code == 3;
    require((pcm && bytes >= 1 && bytes <= 4 && bits > 8 * (bytes - 1) && bits <= 8 * bytes) ||
                (real && (bytes == 4 || bytes == 8) && bits == 8 * bytes),
            "WAV stream", name_, ": format ", code, " of ", bits, " bits in ", bytes,
            " bytes; a pipe carries PCM (1) of 8 to 32 bits or float (3) of 32 or 64");
    require(rate > 0 && rate <= 10'000'000 && channels > 0 && block == bytes * channels, "WAV stream", name_, ": ", rate,
            " Hz, ", channels, " channels and ", block, " bytes per frame in its header");
    constexpr Encoding whole[] = {Encoding::u8, Encoding::s16, Encoding::s24, Encoding::s32};
    encoding_ = pcm ? whole[bytes - 1] : bytes == 4 ? Encoding::f32 : Encoding::f64;
    sample_rate_ = static_cast<int>(rate);
    channels_ = channels;
  }

  /// As many bytes as there are, up to `count`. A failing descriptor ends the sound like its end does, with the reason.
  std::size_t take(unsigned char* into, std::size_t count) {
    std::size_t got = 0;
    while (got < count) {
      const auto n = ::read(descriptor_, into + got, count - got);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) broken_ = name_ + " can't be read: " + std::generic_category().message(errno);
      if (n <= 0) break;
      got += static_cast<std::size_t>(n);
    }
    return got;
  }
  void header_bytes(unsigned char* into, std::size_t count, const char* what) {
    const std::size_t got = take(into, count);
    require(broken_.empty(), "WAV stream", broken_);
    require(got == count, "WAV stream", name_, " ends in its header: ", got, " bytes where ", what, " should be");
  }
  void skip(std::uint64_t count) {
    unsigned char nothing[4096];
    while (count > 0) {
      const auto part = std::min<std::uint64_t>(count, sizeof nothing);
      header_bytes(nothing, part, "a chunk");
      count -= part;
    }
  }

  int descriptor_;
  std::string name_;
  Encoding encoding_ = Encoding::s16;
  std::size_t channels_ = 1;
  std::uint64_t left_ = std::numeric_limits<std::uint64_t>::max();  // bytes of sound still to come; the maximum: unknown
  std::uint64_t promised_ = 0, heard_ = 0, heard_frames_ = 0;
  std::vector<unsigned char> bytes_;
};

}  // namespace

std::unique_ptr<SoundSource> wav_from_pipe(int descriptor, const std::string& name) {
  auto source = std::make_unique<PipeSource>(descriptor, name);
  source->start_wav();
  return source;
}

std::unique_ptr<SoundSource> raw_from_pipe(int descriptor, const std::string& name, const RawFormat& format) {
  auto source = std::make_unique<PipeSource>(descriptor, name);
  source->start_raw(format);
  return source;
}

}  // namespace chorus
