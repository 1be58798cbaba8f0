#include <chorus/core/posix_file.h>
#include <chorus/io/audio.h>
#include <chorus/io/sound_file.h>
#include <soxr.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

namespace chorus {
namespace {

/// At once: 4.6 hours at 16 kHz, 1 GiB as floats.
constexpr sf_count_t most_samples = sf_count_t{1} << 28;

/// A growing file in memory, for libsndfile to write.
struct MemoryFile {
  std::string bytes;
  std::size_t at = 0;

  static SF_VIRTUAL_IO calls() {
    SF_VIRTUAL_IO io{};
    io.get_filelen = [](void* p) { return static_cast<sf_count_t>(of(p).bytes.size()); };
    io.seek = [](sf_count_t offset, int whence, void* p) -> sf_count_t {
      MemoryFile& file = of(p);
      const sf_count_t base =
          whence == SEEK_SET ? 0 : static_cast<sf_count_t>(whence == SEEK_CUR ? file.at : file.bytes.size());
      if (base + offset < 0) return -1;
      file.at = static_cast<std::size_t>(base + offset);
      return base + offset;
    };
    io.read = [](void* into, sf_count_t count, void* p) -> sf_count_t {
      MemoryFile& file = of(p);
      if (file.at >= file.bytes.size()) return 0;
      const std::size_t n = file.bytes.copy(static_cast<char*>(into), static_cast<std::size_t>(count), file.at);
      file.at += n;
      return static_cast<sf_count_t>(n);
    };
    io.write = [](const void* from, sf_count_t count, void* p) -> sf_count_t {
      MemoryFile& file = of(p);
      const auto n = static_cast<std::size_t>(count);
      file.bytes.resize(std::max(file.bytes.size(), file.at + n));
      file.bytes.replace(file.at, n, static_cast<const char*>(from), n);
      file.at += n;
      return count;
    };
    io.tell = [](void* p) { return static_cast<sf_count_t>(of(p).at); };
    return io;
  }

 private:
  static MemoryFile& of(void* p) { return *static_cast<MemoryFile*>(p); }
};

SoundFile whole(SoundFile file, const std::filesystem::path& path) {
  const std::string missing = truncation(file.get());
  require(missing.empty(), "read_audio", path, missing);
  return file;
}

SoundFile open(const std::filesystem::path& path, SF_INFO& info) {
  return whole(open_sound_file("read_audio", path, info), path);
}

/// Bytes that libsndfile reads as if they were a file.
struct FileImage {
  std::span<const std::byte> bytes;
  sf_count_t at = 0;

  sf_count_t size() const { return static_cast<sf_count_t>(bytes.size()); }
  sf_count_t seek(sf_count_t by, int whence) {
    const sf_count_t to = by + (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? at : size());
    return at = std::clamp<sf_count_t>(to, 0, size());
  }
  sf_count_t read(void* into, sf_count_t count) {
    count = std::clamp<sf_count_t>(count, 0, size() - at);
    if (count > 0) std::memcpy(into, bytes.data() + at, static_cast<std::size_t>(count));
    at += count;
    return count;
  }
  static FileImage& of(void* data) { return *static_cast<FileImage*>(data); }
};

/// `memory` must outlive the file.
SoundFile open(FileImage& memory, const std::filesystem::path& name, SF_INFO& info) {
  SF_VIRTUAL_IO io{.get_filelen = [](void* data) { return FileImage::of(data).size(); },
                   .seek = [](sf_count_t by, int whence, void* data) { return FileImage::of(data).seek(by, whence); },
                   .read = [](void* into, sf_count_t count, void* data) { return FileImage::of(data).read(into, count); },
                   .write = [](const void*, sf_count_t, void*) { return sf_count_t{0}; },
                   .tell = [](void* data) { return FileImage::of(data).at; }};
  info = {};
  return whole(believable("read_audio", SoundFile(sf_open_virtual(&io, SFM_READ, &info, &memory)), info, name), name);
}

void average(std::span<const float> interleaved, int channels, std::span<float> mono) {
  for (std::size_t i = 0; i < mono.size(); ++i) {
    float sum = 0;
    for (int c = 0; c < channels; ++c) sum += interleaved[i * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)];
    mono[i] = sum / static_cast<float>(channels);
  }
}

/// Throws at the first sample that is no sound; `number` is that of samples[0] in the file.
void check_samples(std::span<const float> samples, const std::filesystem::path& path, sf_count_t number) {
  int wrong = 0;  // first a loop without branches, whose body fits vectors
  for (const float x : samples) wrong |= std::abs(x) <= loudest_sample ? 0 : 1;
  if (wrong == 0) return;
  for (const float x : samples) {
    require(std::isfinite(x), "read_audio", path, ": sample ", number, " is ", x, ", expected a finite number");
    require(std::abs(x) <= loudest_sample, "read_audio", path, ": sample ", number, " is ", x, ", expected at most ",
            loudest_sample, ": no sound is as loud, and resampling would overflow");
    ++number;
  }
}

std::vector<float> read_range(const SoundFile& file, const SF_INFO& info, const std::filesystem::path& path, int sample_rate,
                              double offset, double duration) {
  require(sample_rate > 0, "read_audio", "sample_rate ", sample_rate, " for ", path, " must be positive");
  const double seconds = static_cast<double>(info.frames) / info.samplerate;
  require(info.frames > 0, "read_audio", path, " has no samples");
  require(offset >= 0 && offset < seconds, "read_audio", path, ": offset ", offset, " s lies outside its ", seconds, " s");
  require(duration <= seconds + 1, "read_audio", path, ": offset ", offset, " s and duration ", duration,
          " s reach beyond its ", seconds, " s");
  const auto first = std::min(static_cast<sf_count_t>(std::llround(offset * info.samplerate)), info.frames - 1);
  sf_count_t count = duration < 0 ? info.frames - first : static_cast<sf_count_t>(std::llround(duration * info.samplerate));
  require(count > 0, "read_audio", path, ": duration ", duration, " s holds no sample at ", info.samplerate, " Hz");
  // Manifests round durations to milliseconds or worse: up to 10 ms beyond the end are forgiven.
  const sf_count_t beyond = first + count - info.frames;
  require(beyond <= info.samplerate / 100, "read_audio", path, ": offset ", offset, " s and duration ", duration,
          " s reach beyond its ", seconds, " s");
  if (beyond > 0) count -= beyond;
  const double wanted = static_cast<double>(count) * std::max(1.0, static_cast<double>(sample_rate) / info.samplerate);
  require(wanted <= static_cast<double>(most_samples), "read_audio", path, ": ", count, " samples at ", info.samplerate,
          " Hz, read at ", sample_rate, " Hz, are more than the ", most_samples,
          " that are read at once: cut the recording, or give offset and duration");

  require(sf_seek(file.get(), first, SEEK_SET) == first, "read_audio", path, ": cannot seek to sample ", first);
  const int channels = info.channels;
  // In blocks: memory follows what is there, not what a header promises.
  constexpr sf_count_t block = 1 << 14;
  const auto room = static_cast<std::size_t>(std::min(block, count) * channels);
  const bool shorts = (info.format & SF_FORMAT_SUBMASK) == SF_FORMAT_PCM_16;
  std::vector<std::int16_t> words(shorts ? room : 0);
  std::vector<float> samples, interleaved(channels == 1 ? 0 : room);
  samples.reserve(static_cast<std::size_t>(std::min(count, 256 * block)));
  for (sf_count_t done = 0, got = 0; done < count; done += got) {
    const sf_count_t want = std::min(block, count - done);
    samples.resize(static_cast<std::size_t>(done + want));
    float* const values = channels == 1 ? samples.data() + done : interleaved.data();
    got = shorts ? sf_readf_short(file.get(), words.data(), want) : sf_readf_float(file.get(), values, want);
    require(got > 0, "read_audio", path, " is truncated: ", done, " of ", count, " samples from ", first, " on could be read (",
            sf_strerror(file.get()), ")");
    const std::span<float> mono(samples.data() + done, static_cast<std::size_t>(got));
    // What libsndfile itself does with 16 bits, in vectors.
    if (shorts)
      std::transform(words.begin(), words.begin() + got * channels, values, [](std::int16_t x) { return x * 0x1p-15f; });
    if (channels > 1) average(interleaved, channels, mono);
    check_samples(mono, path, first + done);
  }
  if (info.samplerate != sample_rate) samples = resample(samples, info.samplerate, sample_rate);
  return samples;
}

}  // namespace

AudioInfo audio_info(const std::filesystem::path& path) {
  SF_INFO info;
  open(path, info);
  return {info.frames, info.samplerate, info.channels};
}

AudioInfo audio_info(std::span<const std::byte> content, const std::filesystem::path& name) {
  SF_INFO info;
  FileImage memory{content};
  open(memory, name, info);
  return {info.frames, info.samplerate, info.channels};
}

std::vector<float> read_audio(const std::filesystem::path& path, int sample_rate, double offset, double duration) {
  SF_INFO info;
  const SoundFile file = open(path, info);
  return read_range(file, info, path, sample_rate, offset, duration);
}

std::vector<float> read_audio(std::span<const std::byte> content, const std::filesystem::path& name, int sample_rate,
                              double offset, double duration) {
  SF_INFO info;
  FileImage memory{content};
  const SoundFile file = open(memory, name, info);
  return read_range(file, info, name, sample_rate, offset, duration);
}

std::vector<float> resample(std::span<const float> samples, int from, int to) {
  require(from > 0 && to > 0, "resample", "from ", from, " Hz to ", to, " Hz: both must be positive");
  if (from == to || samples.empty()) return {samples.begin(), samples.end()};
  const auto wanted = static_cast<std::size_t>(std::llround(static_cast<double>(samples.size()) * to / from));
  if (wanted == 0) return {};  // soxr writes to where there is no room
  std::vector<float> out(wanted);
  std::size_t done = 0;
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_error_t error =
      soxr_oneshot(from, to, 1, samples.data(), samples.size(), nullptr, out.data(), wanted, &done, nullptr, &quality, nullptr);
  require(error == nullptr, "resample", "from ", from, " Hz to ", to, " Hz: ", error ? soxr_strerror(error) : "");
  require(done + 1 >= wanted, "resample", done, " samples where ", wanted, " were expected");
  return out;  // a missing last sample stays zero
}

std::vector<float> change_speed(std::span<const float> samples, double factor) {
  require(factor > 0 && std::isfinite(factor), "change_speed", "factor ", factor, " must be positive");
  if (factor == 1 || samples.empty()) return {samples.begin(), samples.end()};
  const auto n = static_cast<std::size_t>(static_cast<double>(samples.size()) / factor);
  std::vector<float> out(n);
  const std::size_t last = samples.size() - 1;
  for (std::size_t i = 0; i < n; ++i) {
    const double at = static_cast<double>(i) * factor;
    const auto left = static_cast<std::size_t>(at);
    if (left >= last) {
      out[i] = samples[last];
      continue;
    }
    const double fraction = at - static_cast<double>(left), a = samples[left], b = samples[left + 1];
    out[i] = static_cast<float>(a + (b - a) * fraction);
  }
  return out;
}

void write_wav(const std::filesystem::path& path, std::span<const float> samples, int sample_rate) {
  SF_INFO info{};
  info.samplerate = sample_rate;
  info.channels = 1;
  info.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  // In memory first: libsndfile doesn't say what its last write has met.
  MemoryFile memory;
  SF_VIRTUAL_IO calls = MemoryFile::calls();
  {
    const SoundFile file(sf_open_virtual(&calls, SFM_WRITE, &info, &memory));
    require(file != nullptr, "write_wav", path, " at ", sample_rate, " Hz: ", sf_strerror(nullptr));
    sf_command(file.get(), SFC_SET_CLIPPING, nullptr, SF_TRUE);
    const auto count = static_cast<sf_count_t>(samples.size());
    require(sf_writef_float(file.get(), samples.data(), count) == count, "write_wav", path, ": ", sf_strerror(file.get()));
  }
  write_file_atomically(path, memory.bytes);
}

}  // namespace chorus
