// Sound as a stream equals sound read whole, and what ends early says so.
#include <chorus/core/rng.h>
#include <chorus/io/audio.h>
#include <chorus/io/audio_stream.h>
#include <gmock/gmock.h>
#include <sndfile.h>
#include <sys/stat.h>

#include <fstream>

#include "unit/io/files_fixture.h"

namespace chorus {
namespace {
using ::testing::HasSubstr;

std::filesystem::path write(const std::filesystem::path& path, int format, int rate, int channels,
                            const std::vector<float>& interleaved) {
  SF_INFO info{};
  info.samplerate = rate;
  info.channels = channels;
  info.format = format;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  sf_writef_float(file, interleaved.data(), static_cast<sf_count_t>(interleaved.size()) / channels);
  sf_close(file);
  return path;
}

/// Reads in pieces of changing size.
std::vector<float> drain(AudioStream& stream) {
  std::vector<float> out;
  for (std::size_t i = 1; stream.read(out, 1 + 977 * i % 5000) > 0; ++i) {
  }
  return out;
}

TEST(AudioStream, PiecesAreTheWholeWhateverTheRate) {
  const TemporaryFolder folder;
  for (const int rate : {8000, 16000, 22050, 44100}) {
    for (const std::size_t n : std::vector<std::size_t>{1, 2, 700, 16384, 50001}) {
      const auto file = write(folder.path / "a.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, rate, 1, noise(n));
      const std::vector<float> whole = read_audio(file, 16000);
      AudioStream stream = AudioStream::open(file, 16000);
      const std::vector<float> pieces = drain(stream);
      ASSERT_EQ(pieces.size(), whole.size()) << n << " samples at " << rate << " Hz";
      for (std::size_t i = 0; i < whole.size(); ++i)
        ASSERT_EQ(pieces[i], whole[i]) << "sample " << i << " of " << n << " at " << rate << " Hz";
      EXPECT_EQ(stream.broken(), "");
    }
  }
}

TEST(AudioStream, PartsChannelsAndFormats) {
  const TemporaryFolder folder;
  const auto flac = write(folder.path / "a.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 8000, 2, noise(40000));
  for (const auto& [offset, duration] : {std::pair{0.0, -1.0}, {0.25, -1.0}, {0.5, 1.25}, {2.0, 0.505}}) {
    AudioStream stream = AudioStream::open(flac, 8000, offset, duration);
    EXPECT_EQ(drain(stream), read_audio(flac, 8000, offset, duration)) << offset << ", " << duration;
  }
  EXPECT_THAT(error_of([&] { AudioStream::open(flac, 8000, 3); }), HasSubstr("offset 3 s lies outside its 2.5 s"));
  EXPECT_THAT(error_of([&] { AudioStream::open(flac, 8000, 2, 1); }), HasSubstr("reach beyond its 2.5 s"));
  EXPECT_THAT(error_of([&] { AudioStream::open(folder.path / "none.wav", 8000); }), HasSubstr("none.wav\" does not exist"));
  EXPECT_THAT(error_of([&] { AudioStream::open(folder.path, 8000); }), HasSubstr("is a folder"));
  // What whole files refuse (audio_test) streams refuse too: a pipe's opening would wait for ever.
  ASSERT_EQ(::mkfifo((folder.path / "pipe.wav").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { AudioStream::open(folder.path / "pipe.wav", 8000); }), HasSubstr("is no regular file"));
  std::ofstream(folder.path / "empty.wav").flush();
  EXPECT_THAT(error_of([&] { AudioStream::open(folder.path / "empty.wav", 8000); }), HasSubstr("is empty"));
  const auto wide = write(folder.path / "wide.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 65, noise(65 * 10));
  EXPECT_THAT(error_of([&] { AudioStream::open(wide, 8000); }), HasSubstr("65 channels in its header, expected 1 to 64"));
}

TEST(AudioStream, WhatEndsEarlyIsGivenAndSaysSo) {
  const TemporaryFolder folder;
  const auto x = noise(8000);
  const auto wav = write(folder.path / "t.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1, x);
  std::filesystem::resize_file(wav, 44 + 6000);
  AudioStream cut = AudioStream::open(wav, 8000);
  EXPECT_EQ(drain(cut).size(), 3000u);
  EXPECT_THAT(cut.broken(), HasSubstr("6000 bytes of sound where its header promises 16000"));
  AudioStream part = AudioStream::open(wav, 8000, 0.1, 0.2);
  EXPECT_EQ(drain(part).size(), 1600u);
  EXPECT_EQ(part.broken(), "") << "all of the part is there";

  const auto flac = write(folder.path / "t.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 8000, 1, noise(80000));
  std::filesystem::resize_file(flac, std::filesystem::file_size(flac) / 2);
  AudioStream half = AudioStream::open(flac, 8000);
  const std::size_t got = drain(half).size();
  EXPECT_GT(got, 20000u);
  EXPECT_LT(got, 60000u);
  EXPECT_THAT(half.broken(), HasSubstr("t.flac is truncated"));

  auto bad = x;
  bad[5000] = std::numeric_limits<float>::quiet_NaN();
  AudioStream nan = AudioStream::open(write(folder.path / "n.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 8000, 1, bad), 8000);
  const auto before = drain(nan);
  ASSERT_EQ(before.size(), 5000u);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), x.begin()));
  EXPECT_THAT(nan.broken(), HasSubstr("sample 5000 is"));
}

}  // namespace
}  // namespace chorus
