// WAV and raw samples from pipes of known and unknown length, whole and broken.
#include <chorus/core/rng.h>
#include <chorus/io/audio.h>
#include <chorus/io/pipe_sound.h>
#include <gmock/gmock.h>
#include <sndfile.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "unit/io/files_fixture.h"

namespace chorus {
namespace {
using ::testing::HasSubstr;

/// A pipe that carries these bytes, in pieces of seven, and is then closed.
struct Pipe {
  explicit Pipe(std::string bytes) {
    require(::pipe(ends) == 0, "test", "no pipe");
    writer = std::thread([this, bytes = std::move(bytes)] {
      for (std::size_t i = 0; i < bytes.size();) {
        const auto n = ::write(ends[1], bytes.data() + i, std::min<std::size_t>(bytes.size() - i, i < 200 ? 7 : 4096));
        if (n <= 0) break;
        i += static_cast<std::size_t>(n);
      }
      ::close(ends[1]);
    });
  }
  ~Pipe() {
    char rest[4096];
    while (::read(ends[0], rest, sizeof rest) > 0) {
    }
    writer.join();
    ::close(ends[0]);
  }
  Pipe(const Pipe&) = delete;
  int in() const { return ends[0]; }
  int ends[2] = {-1, -1};
  std::thread writer;
};

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void put32(std::string& bytes, std::size_t at, std::uint32_t value) { std::memcpy(bytes.data() + at, &value, 4); }

std::string wav_bytes(const std::filesystem::path& file, int format, int channels, const std::vector<float>& interleaved) {
  SF_INFO info{};
  info.samplerate = 8000;
  info.channels = channels;
  info.format = format;
  SNDFILE* out = sf_open(file.c_str(), SFM_WRITE, &info);
  sf_writef_float(out, interleaved.data(), static_cast<sf_count_t>(interleaved.size()) / channels);
  sf_close(out);
  return bytes_of(file);
}
std::vector<float> drained(AudioStream& stream) {
  std::vector<float> out;
  while (stream.read(out, 1000) > 0) {
  }
  return out;
}

TEST(PipeSound, EveryWavEncodingReadsAsFromAFile) {
  const TemporaryFolder folder;
  for (const int subtype :
       {SF_FORMAT_PCM_U8, SF_FORMAT_PCM_16, SF_FORMAT_PCM_24, SF_FORMAT_PCM_32, SF_FORMAT_FLOAT, SF_FORMAT_DOUBLE})
    for (const int container : {SF_FORMAT_WAV, SF_FORMAT_WAVEX}) {
      const auto file = folder.path / "a.wav";
      const Pipe pipe(wav_bytes(file, container | subtype, 3, noise(9000)));
      AudioStream stream(wav_from_pipe(pipe.in(), "pipe"), 16000);
      EXPECT_EQ(drained(stream), read_audio(file, 16000)) << std::hex << (container | subtype);
      EXPECT_EQ(stream.broken(), "");
    }
}

TEST(PipeSound, UnknownLengthsReachToTheEnd) {
  const TemporaryFolder folder;
  const std::string whole = wav_bytes(folder.path / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, noise(5000));
  const auto expected = read_audio(folder.path / "a.wav", 8000);
  for (const std::uint32_t length : {0u, 0xFFFFFFFFu, 0x7FFFF000u, 0xFFFFFFFFu - 36}) {
    std::string bytes = whole;
    put32(bytes, 4, length);
    put32(bytes, 40, length);
    const Pipe pipe(bytes);
    AudioStream stream(wav_from_pipe(pipe.in(), "pipe"), 8000);
    EXPECT_EQ(drained(stream), expected) << length;
    EXPECT_EQ(stream.broken(), "");
  }
}

TEST(PipeSound, ChunksBeforeAndAfterTheSamplesAreNoSound) {
  const TemporaryFolder folder;
  std::string bytes = wav_bytes(folder.path / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, noise(500));
  bytes.insert(36, std::string("LIST\x05\0\0\0abcde\0", 14));  // of odd length: one more byte of padding
  bytes += std::string("LIST\x04\0\0\0abcd", 12);
  const Pipe pipe(bytes);
  AudioStream stream(wav_from_pipe(pipe.in(), "pipe"), 8000);
  EXPECT_EQ(drained(stream), read_audio(folder.path / "a.wav", 8000));
  EXPECT_EQ(stream.broken(), "");
}

TEST(PipeSound, WhatWasHeardBeforeABrokenEndIsGiven) {
  const TemporaryFolder folder;
  std::string bytes = wav_bytes(folder.path / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, noise(5000));
  {
    const Pipe pipe(bytes.substr(0, 44 + 3000));
    AudioStream stream(wav_from_pipe(pipe.in(), "pipe"), 8000);
    EXPECT_EQ(drained(stream).size(), 1500u);
    EXPECT_THAT(stream.broken(), HasSubstr("pipe ended after 3000 bytes of sound; its header promises 10000"));
  }
  put32(bytes, 40, 0);
  {
    const Pipe pipe(bytes.substr(0, 44 + 3001));
    AudioStream stream(wav_from_pipe(pipe.in(), "pipe"), 8000);
    EXPECT_EQ(drained(stream).size(), 1500u);
    EXPECT_THAT(stream.broken(), HasSubstr("ended within a sample: 3001 bytes are no multiple of 2"));
  }
  {
    const Pipe pipe(bytes.substr(0, 44));
    AudioStream stream(wav_from_pipe(pipe.in(), "pipe"), 8000);
    EXPECT_EQ(drained(stream).size(), 0u);
    EXPECT_THAT(stream.broken(), HasSubstr("has no samples"));
  }
}

TEST(PipeSound, RawSamplesNeedADescription) {
  const auto x = noise(600);
  const std::string bytes(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float));
  {
    const Pipe pipe(bytes);
    AudioStream stream(raw_from_pipe(pipe.in(), "pipe", {"f32le", 8000, 1}), 8000);
    EXPECT_EQ(drained(stream), x);
  }
  {
    const Pipe pipe(bytes);
    AudioStream stream(raw_from_pipe(pipe.in(), "pipe", {"s16le", 8000, 2}), 8000);
    EXPECT_EQ(drained(stream).size(), 600u) << "two channels of two bytes";
  }
  EXPECT_THAT(error_of([] { raw_from_pipe(0, "pipe", {"s16le", 0, 1}); }), HasSubstr("a sample rate of 0 Hz"));
  EXPECT_THAT(error_of([] { raw_from_pipe(0, "pipe", {"u8", 8000, 1}); }), HasSubstr("encoding 'u8'"));
}

TEST(PipeSound, BadHeadersSayWhatIsThere) {
  const TemporaryFolder folder;
  const std::string good = wav_bytes(folder.path / "a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, noise(50));
  const auto error = [](const std::string& bytes) {
    const Pipe pipe(bytes);
    return error_of([&] { wav_from_pipe(pipe.in(), "pipe"); });
  };
  EXPECT_THAT(error(""), HasSubstr("pipe ends in its header"));
  EXPECT_THAT(error(good.substr(0, 30)), HasSubstr("pipe ends in its header"));
  EXPECT_THAT(error("fLaC" + std::string(100, '\0')), HasSubstr("starts with 'fLaC', expected RIFF"));
  std::string bad = good;
  bad[20] = 7;
  EXPECT_THAT(error(bad), HasSubstr("format 7 of 16 bits"));
  bad = good;
  put32(bad, 24, 0);
  EXPECT_THAT(error(bad), HasSubstr("0 Hz"));
  bad = good;
  bad[22] = 0;
  EXPECT_THAT(error(bad), HasSubstr("format 1 of 16 bits in 0 bytes"));
  bad = good;
  bad.replace(12, 4, "junk");
  EXPECT_THAT(error(bad), HasSubstr("data before its fmt chunk"));
  put32(bad, 16, 0xFFFFFFF0u);
  EXPECT_THAT(error(bad), HasSubstr("pipe ends in its header"));
}

}  // namespace
}  // namespace chorus
