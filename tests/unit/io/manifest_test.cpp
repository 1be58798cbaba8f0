#include <chorus/core/error.h>
#include <chorus/io/audio.h>
#include <chorus/io/manifest.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace chorus {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Manifest : testing::Test {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("chorus_manifest_test." + std::to_string(getpid()));
  Manifest() { std::filesystem::create_directories(folder); }
  ~Manifest() override { std::filesystem::remove_all(folder); }
  std::filesystem::path write(const std::string& lines) {
    std::ofstream(folder / "m.jsonl") << lines;
    return folder / "m.jsonl";
  }
  auto error(const std::string& lines, const std::string& message) {
    EXPECT_THAT([&] { read_manifest(write(lines)); }, ThrowsMessage<Error>(HasSubstr(message)));
  }
};

TEST_F(Manifest, ReadsNemoLines) {
  const auto entries =
      read_manifest(write(R"({"audio_filepath": "a/b.wav", "duration": 1.5, "text": "grüezi", "lang": "de", "extra": [1]}

{"audio_filepath": "/x.flac", "offset": 2, "duration": 0.25, "text": "", "id": "u7"}
{"audio_filepath": "skipped.wav", "text": "no", "_skipme": true}
{"audio_filepath": "c.wav", "text": "open end", "duration": null})"));
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].audio, folder / "a/b.wav");
  EXPECT_EQ(entries[0].text, "grüezi");
  EXPECT_EQ(entries[0].lang, "de");
  EXPECT_EQ(entries[0].duration, 1.5);
  EXPECT_EQ(entries[1].audio, "/x.flac");
  EXPECT_EQ(entries[1].offset, 2);
  EXPECT_EQ(entries[1].id, "u7");
  EXPECT_EQ(entries[2].duration, -1);
}

TEST_F(Manifest, ErrorsNameFileLineFieldAndValue) {
  const std::string good = R"({"audio_filepath": "a.wav", "text": "t"})";
  error(good + "\n" + R"({"audio_filepath": "a.wav")", "m.jsonl:2: no JSON");
  error("[1, 2]", "m.jsonl:1: expected a JSON object, found array");
  error(R"({"text": "t"})", "m.jsonl:1: field 'audio_filepath' is missing");
  error(R"({"audio_filepath": ""  , "text": "t"})", "m.jsonl:1: field 'audio_filepath' is empty");
  error(good + "\n\n" + R"({"audio_filepath": "a.wav"})", "m.jsonl:3: field 'text' is missing");
  error(R"({"audio_filepath": "a.wav", "text": 5})", "m.jsonl:1: field 'text' is 5, expected a string");
  error(R"({"audio_filepath": "a.wav", "text": "t", "duration": "1"})",
        "m.jsonl:1: field 'duration' is \"1\", expected a number");
  error(R"({"audio_filepath": "a.wav", "text": "t", "duration": 0})", "m.jsonl:1: field 'duration' is 0, expected seconds > 0");
  error(R"({"audio_filepath": "a.wav", "text": "t", "offset": -1})", "m.jsonl:1: field 'offset' is -1, expected seconds >= 0");
  EXPECT_THAT([&] { read_manifest(folder / "none.jsonl"); }, ThrowsMessage<Error>(HasSubstr("cannot open")));
}

TEST_F(Manifest, WhatIsWrittenReadsBack) {
  const std::vector<ManifestEntry> entries = {{"/a/b.wav", "it's \"quoted\" \n", 0.1, 1.0 / 3, "en", "x"}, {"/c.wav", "plain"}};
  write_manifest(folder / "w.jsonl", entries);
  const auto back = read_manifest(folder / "w.jsonl");
  ASSERT_EQ(back.size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(back[i].audio, entries[i].audio);
    EXPECT_EQ(back[i].text, entries[i].text);
    EXPECT_EQ(back[i].offset, entries[i].offset);
    EXPECT_EQ(back[i].duration, entries[i].duration);
    EXPECT_EQ(back[i].lang, entries[i].lang);
    EXPECT_EQ(back[i].id, entries[i].id);
  }
}

TEST_F(Manifest, MissingDurationsComeFromTheHeaders) {
  write_wav(folder / "s.wav", std::vector<float>(4000), 8000);
  std::vector<ManifestEntry> entries = {
      {folder / "s.wav", "a"}, {folder / "s.wav", "b", 0.125}, {folder / "gone.wav", "c", 0, 2}};
  fill_durations(entries);
  EXPECT_EQ(entries[0].duration, 0.5);
  EXPECT_EQ(entries[1].duration, 0.375);
  EXPECT_EQ(entries[2].duration, 2);
}

}  // namespace
}  // namespace chorus
