#include <chorus/core/error.h>
#include <chorus/io/audio.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sndfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <numbers>

namespace chorus {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct AudioFiles : ::testing::Test {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("chorus_audio_test." + std::to_string(getpid()));
  AudioFiles() { std::filesystem::create_directories(folder); }
  ~AudioFiles() override { std::filesystem::remove_all(folder); }

  std::filesystem::path write(const char* name, int format, int rate, int channels, const std::vector<float>& interleaved) {
    SF_INFO info{};
    info.samplerate = rate;
    info.channels = channels;
    info.format = format;
    SNDFILE* file = sf_open((folder / name).c_str(), SFM_WRITE, &info);
    sf_writef_float(file, interleaved.data(), static_cast<sf_count_t>(interleaved.size()) / channels);
    sf_close(file);
    return folder / name;
  }
};

std::vector<float> sine(double hz, int rate, int n) {
  std::vector<float> x(n);
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(0.5 * std::sin(2 * std::numbers::pi * hz * i / rate));
  return x;
}

TEST_F(AudioFiles, EveryFormatReadsBackWithin16Bits) {
  const std::vector<float> x = sine(440, 8000, 4001);
  for (const auto& [name, format] :
       {std::pair{"a.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16}, {"a.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16}}) {
    const std::vector<float> y = read_audio(write(name, format, 8000, 1, x), 8000);
    ASSERT_EQ(y.size(), x.size()) << name;
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], x[i], 1.1 / 32768) << name << " at " << i;
  }
  const std::vector<float> y = read_audio(write("a.ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 8000, 1, x), 8000);
  ASSERT_EQ(y.size(), x.size());
}

TEST_F(AudioFiles, ChannelsAreAveraged) {
  const auto file = write("st.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 8000, 2, {0.5f, 0.25f, -1, 0, 0.125f, 0.125f});
  EXPECT_THAT(read_audio(file, 8000), ::testing::ElementsAre(0.375f, -0.5f, 0.125f));
  const AudioInfo info = audio_info(file);
  EXPECT_EQ(info.frames, 3);
  EXPECT_EQ(info.channels, 2);
  EXPECT_DOUBLE_EQ(info.seconds(), 3.0 / 8000);
}

TEST_F(AudioFiles, SixteenBitsAreReadAsLibsndfileReadsThem) {
  std::vector<float> x(40'002);  // longer than the blocks of reading
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 65536) / 32768 - 1;
  for (const int format : {SF_FORMAT_WAV, SF_FORMAT_FLAC})
    for (const int channels : {1, 2}) {
      const auto path = write("x", format | SF_FORMAT_PCM_16, 8000, channels, x);
      SF_INFO info{};
      SNDFILE* file = sf_open(path.c_str(), SFM_READ, &info);
      std::vector<float> want(x.size());
      ASSERT_EQ(sf_read_float(file, want.data(), std::ssize(want)), std::ssize(want));
      sf_close(file);
      EXPECT_LT(*std::min_element(want.begin(), want.end()), -0.99f);
      if (channels == 2)
        for (std::size_t i = 0; i < want.size() / 2; ++i) want[i] = (want[2 * i] + want[2 * i + 1]) / 2;
      want.resize(x.size() / static_cast<std::size_t>(channels));
      EXPECT_EQ(read_audio(path, 8000), want) << channels << " channels";
    }
}

TEST_F(AudioFiles, OffsetAndDurationCutExactly) {
  std::vector<float> x(800);
  for (int i = 0; i < 800; ++i) x[i] = static_cast<float>(i) / 1024;
  const auto file = write("f.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 8000, 1, x);
  const std::vector<float> y = read_audio(file, 8000, 0.01, 0.02);
  ASSERT_EQ(y.size(), 160u);
  for (int i = 0; i < 160; ++i) ASSERT_EQ(y[i], x[80 + i]);
  EXPECT_EQ(read_audio(file, 8000, 0.09).size(), 80u);
  EXPECT_EQ(read_audio(file, 8000, 0.09, 0.015).size(), 80u) << "5 ms beyond the end are rounding of the manifest";
  EXPECT_THAT([&] { read_audio(file, 8000, 0.09, 0.03); },
              ThrowsMessage<Error>(HasSubstr("duration 0.03 s reach beyond its 0.1 s")));
  EXPECT_THAT([&] { read_audio(file, 8000, 0.2); }, ThrowsMessage<Error>(HasSubstr("offset 0.2 s lies outside its 0.1 s")));
  EXPECT_THAT([&] { read_audio(file, 8000, 0, 0); }, ThrowsMessage<Error>(HasSubstr("duration 0 s holds no sample")));
}

TEST_F(AudioFiles, BadFilesAreErrorsThatNameThem) {
  EXPECT_THAT([&] { read_audio(folder / "none.wav", 8000); }, ThrowsMessage<Error>(HasSubstr("none.wav\" does not exist")));
  std::ofstream(folder / "text.wav") << "this is no sound at all";
  EXPECT_THAT([&] { read_audio(folder / "text.wav", 8000); }, ThrowsMessage<Error>(HasSubstr("text.wav")));
  const auto empty = write("empty.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1, {});
  EXPECT_THAT([&] { read_audio(empty, 8000); }, ThrowsMessage<Error>(HasSubstr("empty.wav\" has no samples")));
  const auto nan = write("nan.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 8000, 1, {0, std::numeric_limits<float>::quiet_NaN(), 0});
  EXPECT_THAT([&] { read_audio(nan, 8000); }, ThrowsMessage<Error>(HasSubstr("sample 1 is nan")));
}

TEST_F(AudioFiles, WhatIsNoSoundFileIsNamed) {
  std::ofstream(folder / "zero.wav").flush();
  EXPECT_THAT([&] { read_audio(folder / "zero.wav", 8000); }, ThrowsMessage<Error>(HasSubstr("is empty: 0 bytes")));
  EXPECT_THAT([&] { read_audio(folder, 8000); }, ThrowsMessage<Error>(HasSubstr("is a folder, expected a sound file")));
  ASSERT_EQ(mkfifo((folder / "pipe.wav").c_str(), 0600), 0);
  EXPECT_THAT([&] { audio_info(folder / "pipe.wav"); }, ThrowsMessage<Error>(HasSubstr("is no regular file")));
}

TEST_F(AudioFiles, HeadersCannotAskForHours) {
  // A WAV header at byte 24 says the rate: at 1 Hz, resampled, 2 MB would be 17 hours.
  const auto slow = write("slow.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1, std::vector<float>(1'000'000, 0.1f));
  std::fstream(slow, std::ios::in | std::ios::out | std::ios::binary).seekp(24).write("\x01\0\0\0", 4);
  EXPECT_THAT([&] { read_audio(slow, 16000); }, ThrowsMessage<Error>(HasSubstr("1 Hz in its header, expected 1000 to 768000")));
  std::fstream(slow, std::ios::in | std::ios::out | std::ios::binary).seekp(24).write("\xe8\x03\0\0", 4);
  EXPECT_THAT([&] { read_audio(slow, 768'000); },
              ThrowsMessage<Error>(HasSubstr("1000000 samples at 1000 Hz, read at 768000 Hz, are more than the 268435456")));
  EXPECT_EQ(read_audio(slow, 1000).size(), 1'000'000u);
  EXPECT_THAT([&] { read_audio(slow, 1000, 0, 1e300); }, ThrowsMessage<Error>(HasSubstr("reach beyond its 1000 s")));
  EXPECT_THAT([&] { read_audio(slow, 1000, 1e300); }, ThrowsMessage<Error>(HasSubstr("outside its 1000 s")));
  EXPECT_THAT([&] { read_audio(slow, 1000, -1); }, ThrowsMessage<Error>(HasSubstr("outside its 1000 s")));
}

TEST_F(AudioFiles, TruncationIsSeen) {
  const auto wav = write("t.wav", SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1, sine(300, 8000, 8000));
  std::filesystem::resize_file(wav, 44 + 6000);
  EXPECT_THAT([&] { read_audio(wav, 8000); },
              ThrowsMessage<Error>(HasSubstr("6000 bytes of sound where its header promises 16000")));
  const auto flac = write("t.flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 8000, 1, sine(300, 8000, 80000));
  std::filesystem::resize_file(flac, std::filesystem::file_size(flac) / 2);
  EXPECT_THAT([&] { read_audio(flac, 8000); }, ThrowsMessage<Error>(HasSubstr("truncated")));
}

TEST_F(AudioFiles, WriteWavClipsAndReadsBack) {
  const std::vector<float> x = {0, 0.25f, -0.25f, 1.5f, -1.5f};
  write_wav(folder / "w.wav", x, 16000);
  const std::vector<float> y = read_audio(folder / "w.wav", 16000);
  EXPECT_FLOAT_EQ(y[1], 0.25f);
  EXPECT_NEAR(y[3], 1, 1e-4);
  EXPECT_NEAR(y[4], -1, 1e-4);
}

TEST(Audio, ResamplingKeepsASine) {
  const std::vector<float> up = resample(sine(440, 8000, 8000), 8000, 16000), want = sine(440, 16000, 16000);
  ASSERT_EQ(up.size(), want.size());
  for (std::size_t i = 1000; i < 15000; ++i) ASSERT_NEAR(up[i], want[i], 1e-3) << i;
  EXPECT_EQ(resample(sine(440, 44100, 44100), 44100, 16000).size(), 16000u);
}

TEST(Audio, SpeedInterpolatesLinearly) {
  const std::vector<float> x = {0, 1, 4, 9, 16, 25};
  EXPECT_EQ(change_speed(x, 1), x);
  EXPECT_THAT(change_speed(x, 1.5), ::testing::ElementsAre(0, 2.5f, 9, 20.5f));
  EXPECT_THAT(change_speed(x, 0.5), ::testing::ElementsAre(0, 0.5f, 1, 2.5f, 4, 6.5f, 9, 12.5f, 16, 20.5f, 25, 25));
  EXPECT_THAT([&] { change_speed(x, 0); }, ThrowsMessage<Error>(HasSubstr("factor 0 must be positive")));
}

}  // namespace
}  // namespace chorus
