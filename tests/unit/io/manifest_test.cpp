#include <chorus/core/error.h>
#include <chorus/io/audio.h>
#include <chorus/io/manifest.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace chorus {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Manifest : ::testing::Test {
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
        "m.jsonl:1: field 'duration' is \"1\", expected a number of seconds");
  error(R"({"audio_filepath": "a.wav", "text": "t", "offset": 1e300})",
        "m.jsonl:1: field 'offset' is 1e+300, expected a number");
  error(R"({"audio_filepath": "a.wav", "text": "t", "duration": 0})", "m.jsonl:1: field 'duration' is 0, expected seconds > 0");
  error(R"({"audio_filepath": "a.wav", "text": "t", "offset": -1})", "m.jsonl:1: field 'offset' is -1, expected seconds >= 0");
  error(R"({"audio_filepath": )" + std::string(100'000, '['), "m.jsonl:1: values nest 100001 deep, expected at most 100");
  EXPECT_THAT([&] { read_manifest(folder / "none.jsonl"); },
              ThrowsMessage<Error>(HasSubstr("cannot open " + (folder / "none.jsonl").string() + ": No such file")));
}

TEST_F(Manifest, EveryBadLineIsToldAndTheOthersAreRead) {
  const std::string good = R"({"audio_filepath": "a.wav", "text": "t"})";
  const auto file = write("\xef\xbb\xbf" + good + "\r\n{]\n" + good + "\n{\"path\": 1, \"text\": \"x\"}\n" +
                          R"({"audio_filepath": "a.wav", "text": ")" + "\xff\"}\n" + good);
  std::vector<std::string> told;
  const auto entries = read_manifest(file, [&](const std::string& problem) { told.push_back(problem); });
  ASSERT_EQ(entries.size(), 3u) << "a byte order mark and CR before LF do no harm";
  EXPECT_EQ(place(entries[0]), file.string() + ":1");
  EXPECT_EQ(place(entries[1]), file.string() + ":3");
  EXPECT_EQ(entries[2].line, 6) << "the last line ends with the file";
  ASSERT_EQ(told.size(), 3u);
  EXPECT_THAT(told[0], HasSubstr("m.jsonl:2: no JSON: column 2"));
  EXPECT_THAT(told[1], HasSubstr("m.jsonl:4: field 'audio_filepath' is missing; the line has path, text"));
  EXPECT_THAT(told[2], HasSubstr("m.jsonl:5: byte 38 of the line, 255, belongs to no character of UTF-8"));
  EXPECT_THAT([&] { read_manifest(file); },
              ThrowsMessage<Error>(::testing::AllOf(HasSubstr("m.jsonl:2"), HasSubstr("m.jsonl:4"), HasSubstr("m.jsonl:5"))));
}

TEST_F(Manifest, MessagesStayShort) {
  const std::string wide(100'000, 'x');
  for (const std::string& line :
       {"{\"audio_filepath\": \"a\", \"text\": [\"" + wide + "\"]}", "{\"" + wide + "\": 1}", "{\"a\": \"" + wide, wide}) {
    std::string told;
    read_manifest(write(line), [&](const std::string& problem) { told += problem; });
    EXPECT_GT(told.size(), 50u);
    EXPECT_LT(told.size(), 400u);
  }
  std::string many;
  for (int i = 0; i < 50; ++i) many += "[]\n";
  error(many, "m.jsonl:20: expected a JSON object, found array");
  error(many, "and 30 more lines");
}

TEST_F(Manifest, WhatIsNoManifestIsNamed) {
  error(std::string(std::size_t{3} << 20, 'x'), "has a line of more than 1048575 bytes");
  error("\x1f\x8b\x08", "is compressed by gzip, expected JSON lines in UTF-8");
  error("\xff\xfe{", "is UTF-16");
  error("RIFF", "is a sound file");
  EXPECT_THAT([&] { read_manifest(folder); }, ThrowsMessage<Error>(HasSubstr("is a folder, expected a file of JSON lines")));
  EXPECT_TRUE(read_manifest(write("")).empty());
  EXPECT_TRUE(read_manifest(write("\n \r\n")).empty());
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
