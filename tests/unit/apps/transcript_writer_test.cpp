// Formats of transcripts, and what inputs mean.
#include <chorus/apps/transcript_input.h>
#include <chorus/apps/transcript_writer.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

namespace chorus {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two recordings: one of two segments, one that failed in the middle.
std::string write(const std::string& format, bool words, bool two = true) {
  std::string out;
  const auto writer = make_writer(format, words, [&](std::string_view text) { out += text; });
  writer->recording("a.wav");
  writer->segment({0, 10, "hello world", -0.25, {{"hello", 0.5, 1}, {"world", 1.25, 2}}});
  writer->segment({10, 12.5, "again", -0.5, {}});
  writer->end(12.5, "");
  if (two) {
    writer->recording("b.wav");
    writer->segment({0, 3, "half", -0.65971, {}});
    writer->end(3, "is truncated");
    writer->recording("c.wav");
    writer->end(0, "does not exist");
  }
  writer->finish();
  return out;
}

TEST(TranscriptWriter, TextIsALineForEachRecordingThatWasHeard) {
  EXPECT_EQ(write("text", false), "a.wav\thello world again\nb.wav\thalf\n");
}

TEST(TranscriptWriter, JsonHoldsEverything) {
  const auto json = nlohmann::json::parse(write("json", true));
  ASSERT_EQ(json.size(), 3u);
  EXPECT_EQ(json[0]["audio_filepath"], "a.wav");
  EXPECT_EQ(json[0]["text"], "hello world again");
  EXPECT_EQ(json[0]["duration"], 12.5);
  const auto& segments = json[0]["segments"];
  ASSERT_EQ(segments.size(), 2u);
  EXPECT_EQ(segments[1]["id"], 1);
  EXPECT_EQ(segments[1]["start"], 10);
  EXPECT_EQ(segments[1]["end"], 12.5);
  EXPECT_EQ(segments[0]["avg_logprob"], -0.25);
  EXPECT_EQ(segments[0]["words"][1]["word"], "world");
  EXPECT_EQ(segments[0]["words"][1]["start"], 1.25);
  EXPECT_TRUE(segments[1]["words"].is_null()) << "there is text, but no times";
  EXPECT_FALSE(json[0].contains("error"));
  EXPECT_EQ(json[1]["text"], "half");
  EXPECT_EQ(json[1]["error"], "is truncated");
  EXPECT_EQ(json[2]["segments"].size(), 0u);
}

TEST(TranscriptWriter, JsonLinesAreSegments) {
  std::istringstream lines(write("jsonl", false));
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[1]["audio_filepath"], "a.wav");
  EXPECT_EQ(all[1]["text"], "again");
  EXPECT_FALSE(all[1].contains("words"));
  EXPECT_EQ(all[3]["error"], "is truncated");
  EXPECT_THAT(write("jsonl", false), HasSubstr("\"avg_logprob\":-0.6597}"));
}

TEST(TranscriptWriter, SubtitlesHaveCues) {
  EXPECT_EQ(write("srt", false, false),
            "1\n00:00:00,500 --> 00:00:02,000\nhello world\n\n2\n00:00:10,000 --> 00:00:12,500\nagain\n\n");
  EXPECT_EQ(write("vtt", false, false),
            "WEBVTT\n\n00:00:00.500 --> 00:00:02.000\nhello world\n\n00:00:10.000 --> 00:00:12.500\nagain\n\n");
  EXPECT_EQ(subtitle_time(3661.0005, ','), "01:01:01,001");
  std::string out;
  const auto writer = make_writer("srt", true, [&](std::string_view text) { out += text; });
  WrittenSegment segment{0, 30, "", 0, {}};
  for (int i = 0; i < 10; ++i) segment.words.push_back({"word" + std::to_string(i), 2.0 * i, 2.0 * i + 1});
  writer->segment(segment);
  EXPECT_THAT(out, HasSubstr("1\n00:00:00,000 --> 00:00:07,000\nword0 word1 word2 word3\n"));
  EXPECT_THAT(out, HasSubstr("3\n00:00:16,000 --> 00:00:19,000\nword8 word9\n"));
}

TEST(TranscriptInput, FoldersListsAndManifestsBecomeRecordings) {
  std::string name = ::testing::TempDir() + "chorus-input-XXXXXX";
  ASSERT_NE(::mkdtemp(name.data()), nullptr);
  const std::filesystem::path folder = name;
  std::filesystem::create_directories(folder / "deep");
  for (const char* file : {"b.WAV", "a.flac", "deep/c.ogg", "readme.txt"}) std::ofstream(folder / file) << "x";
  std::ofstream(folder / "list.txt") << "one.wav\r\n\n" << (folder / "deep").string() << "\n-\n";
  std::ofstream(folder / "m.jsonl") << "\n{\"audio_filepath\": \"d.wav\", \"text\": \"t\", \"own\": 1}\n"
                                    << "{\"audio_filepath\": \"e.wav\", \"text\": \"t\", \"_skipme\": true}\n"
                                    << "{\"audio_filepath\": \"f.wav\", \"offset\": 2, \"duration\": 3}\nnonsense\n";
  const auto names = [](const std::vector<TranscriptSource>& sources) {
    std::vector<std::string> out;
    for (const auto& source : sources) out.push_back(source.name());
    return out;
  };
  EXPECT_THAT(names(list_sources({folder.string()})), ElementsAre(folder / "a.flac", folder / "b.WAV", folder / "deep/c.ogg"));
  const auto listed = list_sources({"x.wav", "@" + (folder / "list.txt").string()});
  EXPECT_THAT(names(listed), ElementsAre("x.wav", "one.wav", folder / "deep/c.ogg", "-"));
  EXPECT_TRUE(listed[3].from_pipe);
  EXPECT_THROW(list_sources({"-", "-"}), Error);
  EXPECT_THROW(list_sources({"@" + (folder / "none").string()}), Error);
  std::filesystem::create_directories(folder / "empty");
  EXPECT_THROW(list_sources({(folder / "empty").string()}), Error);

  std::vector<std::string> bad;
  const auto manifest = list_manifest(folder / "m.jsonl", [&](const std::string& problem) { bad.push_back(problem); });
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_THAT(bad[0], HasSubstr("m.jsonl:5"));
  EXPECT_THAT(names(manifest), ElementsAre(folder / "d.wav", folder / "f.wav"));
  EXPECT_EQ(manifest[1].entry.text, "") << "no reference is no error here";
  const auto line = nlohmann::json::parse(output_line(manifest[0], 9, "heard", ""));
  EXPECT_EQ(line["own"], 1);
  EXPECT_EQ(line["pred_text"], "heard");
  EXPECT_EQ(line["audio_filepath"], "d.wav");
  EXPECT_FALSE(line.contains("error"));
  const auto plain = nlohmann::json::parse(output_line(listed[0], 1.25, "heard", "broke"));
  EXPECT_EQ(plain["duration"], 1.25);
  EXPECT_EQ(plain["error"], "broke");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace chorus
