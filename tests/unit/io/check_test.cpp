#include <chorus/io/audio.h>
#include <chorus/io/check.h>
#include <gmock/gmock.h>
#include <sndfile.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "unit/io/files_fixture.h"

namespace chorus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct CheckFiles : ::testing::Test {
  TemporaryFolder folder;
  std::filesystem::path path(const std::string& name) const { return folder.path / name; }

  void wav(const std::string& name, double seconds, float amplitude = 0.3f, int rate = 8000, int channels = 1,
           bool nan = false) const {
    std::vector<float> x(static_cast<std::size_t>(seconds * rate) * channels);
    // Every file another sound, but for those that differ in nothing.
    const double pitch = 100 + 7 * static_cast<double>(name.size()) + 3 * (name.empty() ? 0 : name[0]);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = std::clamp(amplitude * static_cast<float>(std::sin(pitch * static_cast<double>(i) / rate)), -1.f, 1.f);
    if (nan) x[x.size() / 2] = std::numeric_limits<float>::quiet_NaN();
    SF_INFO info{};
    info.samplerate = rate, info.channels = channels, info.format = SF_FORMAT_WAV | SF_FORMAT_FLOAT;
    SNDFILE* file = sf_open(path(name).c_str(), SFM_WRITE, &info);
    ASSERT_NE(file, nullptr);
    sf_writef_float(file, x.data(), static_cast<sf_count_t>(x.size()) / channels);
    sf_close(file);
  }
  std::filesystem::path manifest(const std::string& name, const std::string& lines) const {
    std::ofstream(path(name)) << lines;
    return path(name);
  }
  static std::string line(const std::string& audio, const std::string& text, const std::string& more = "") {
    return R"({"audio_filepath": ")" + audio + R"(", "text": ")" + text + '"' + more + "}\n";
  }
  CheckReport check(const std::vector<std::filesystem::path>& train, const std::vector<std::filesystem::path>& heldout = {},
                    bool deep = true, int threads = 2) const {
    return check_manifests(train, heldout, {.deep = deep, .threads = threads, .tars = ""});
  }
  /// "kind @ line: text" of all findings.
  static std::vector<std::string> shown(const CheckReport& report) {
    std::vector<std::string> out;
    for (const Finding& f : report.findings)
      out.push_back((f.severity == Severity::error ? "E " : "W ") + f.kind + " @ " + f.where.substr(f.where.rfind('/') + 1) +
                    ": " + f.text);
    return out;
  }
};

TEST_F(CheckFiles, ACleanCorpusHasNoFindings) {
  wav("a.wav", 1), wav("bb.wav", 2);
  const CheckReport report =
      check({manifest("m.jsonl", line("a.wav", "one two three", R"(, "lang": "en", "speaker": "s1", "id": "a")") +
                                     line("bb.wav", "grüezi мир", R"(, "lang": "de", "offset": 0.5, "duration": 1.5)"))});
  EXPECT_THAT(shown(report), ::testing::IsEmpty());
  EXPECT_EQ(report.languages.at("en").entries, 1);
  EXPECT_EQ(report.languages.at("en").characters, 13);
  EXPECT_EQ(report.languages.at("en").speakers.size(), 1u);
  EXPECT_EQ(report.languages.at("de").characters, 10) << "characters, not bytes";
  EXPECT_DOUBLE_EQ(report.manifests.at(path("m.jsonl").string()).seconds, 2.5);
  EXPECT_EQ(report.characters.at(U'м'), 1);
  EXPECT_EQ(report.sample_rates.at(8000), 2);
}

TEST_F(CheckFiles, EveryProblemIsReportedAtOnce) {
  wav("a.wav", 1), wav("stereo.wav", 1, 0.3f, 8000, 2), wav("quick.wav", 1, 0.3f, 16000), wav("silent.wav", 1, 1e-5f);
  wav("clipped.wav", 1, 2.f), wav("nan.wav", 1, 0.3f, 8000, 1, true), wav("blip.wav", 0.05), wav("empty.wav", 0),
      wav("cut.wav", 1);
  std::filesystem::resize_file(path("cut.wav"), 9000);
  std::ofstream(path("text.wav")) << "this is no sound";
  const auto m =
      manifest("m.jsonl", line("a.wav", "same id here", R"(, "id": "x")") +  // 1
                              "{broken\n" +                                  // 2
                              R"({"text": "no sound field"})"
                              "\n" +                                                         // 3
                              line("a.wav", "caf\xe9") +                                     // 4
                              line("gone.wav", "a missing file") +                           // 5
                              line("text.wav", "not a sound file") +                         // 6
                              line("cut.wav", "a truncated file") +                          // 7
                              line("empty.wav", "a file without samples") +                  // 8
                              line("a.wav", "from beyond", R"(, "offset": 2)") +             // 9
                              line("a.wav", "too long", R"(, "duration": 1.5)") +            // 10
                              line("nan.wav", "not a number", R"(, "id": "x")") +            // 11
                              line("silent.wav", "nothing to hear") +                        // 12
                              line("clipped.wav", "much too loud") +                         // 13
                              line("stereo.wav", "two channels") +                           // 14
                              line("quick.wav", "another rate") +                            // 15
                              line("blip.wav", "x") +                                        // 16
                              line("a.wav", "...") +                                         // 17
                              line("stereo.wav", "zero\u200bwidth", R"(, "offset": 0.1)") +  // 18
                              line("stereo.wav", "Cлово", R"(, "offset": 0.2)") +            // 19
                              line("stereo.wav", "e\u0301te\u0301", R"(, "offset": 0.3)") +  // 20
                              line("stereo.wav",
                                   "one hundred and fifty characters in one second are more than anybody could say at all, "
                                   "whoever tries and however quick",
                                   R"(, "offset": 0.4)") +           // 21
                              line("quick.wav", "Another, RATE!"));  // 22
  const std::vector<std::string> all = shown(check({m, path("none.jsonl")}));
  for (const char* expected : {"E bad line @ m.jsonl: .*m.jsonl:2: no JSON",
                               "E bad line @ m.jsonl: .*m.jsonl:3: field 'audio_filepath' is missing",
                               "E bad line @ m.jsonl: .*m.jsonl:4: .*UTF-8",
                               "E unreadable sound @ m.jsonl:5: .*gone.wav.* does not exist",
                               "E unreadable sound @ m.jsonl:6: .*text.wav",
                               "E unreadable sound @ m.jsonl:7: .*truncated",
                               "E (empty|unreadable) sound @ m.jsonl:8: ",
                               "E beyond the end @ m.jsonl:9: .* has 1 s, the entry asks for 2 to",
                               "E beyond the end @ m.jsonl:10: .*asks for 0 to 1.5 s",
                               "E unreadable sound @ m.jsonl:11: .*nan.wav.*sample 4000 is .*nan",
                               "E equal ids @ m.jsonl:11: id 'x' is also that of .*m.jsonl:1",
                               "E manifest @ none.jsonl: ",
                               "W silent @ m.jsonl:12: its largest sample is 1e-05",
                               "W clipped @ m.jsonl:13: ",
                               "W channels @ m.jsonl:14: .*stereo.wav has 2 channels",
                               "W sample rates @ all manifests: .*16000 Hz",
                               "W very short @ m.jsonl:16: 0.05 s",
                               "W no text @ m.jsonl:17: '...' has no letter",
                               "W odd characters @ m.jsonl:18: U\\+200B in ",
                               "W mixed scripts @ m.jsonl:19: 'Cлово'",
                               "W not composed @ m.jsonl:20",
                               "W speech rate @ m.jsonl:21: ",
                               "W repeated text @ m.jsonl:15: 2 entries have the text 'another rate'",
                               "W repeated sound @ m.jsonl:1"})
    EXPECT_THAT(all, ::testing::Contains(::testing::ContainsRegex(expected))) << expected;
  for (const std::string& text : all)
    EXPECT_THAT(text, ::testing::Not(::testing::ContainsRegex("\\[[a-z_]+\\.cpp:"))) << "no places in the source";
}

TEST_F(CheckFiles, HeldOutTextAndSoundMustNotBeTrainedOn) {
  wav("a.wav", 1), wav("bb.wav", 1), wav("ccc.wav", 1);
  std::filesystem::copy(path("bb.wav"), path("copy.wav"));
  const auto train = manifest("t.jsonl", line("a.wav", "Press one, please.") + line("bb.wav", "alpha")),
             held = manifest("h.jsonl", line("ccc.wav", "press ONE please") + line("copy.wav", "beta"));
  EXPECT_THAT(shown(check({train, held})), ::testing::Not(::testing::Contains(HasSubstr("straddles"))))
      << "both are to train on";
  const auto found = shown(check({train}, {held}));
  EXPECT_THAT(found, ::testing::Contains(AllOf(HasSubstr("E text straddles @ h.jsonl:1"), HasSubstr("t.jsonl:1"),
                                               HasSubstr("'press one please'"))));
  EXPECT_THAT(found, ::testing::Contains(AllOf(HasSubstr("E sound straddles @ h.jsonl:2"), HasSubstr("t.jsonl:2"))));
  EXPECT_THAT(shown(check({train}, {held}, false)), ::testing::Not(::testing::Contains(HasSubstr("sound straddles"))))
      << "headers don't tell";
  const auto other = manifest("o.jsonl", line("ccc.wav", "alpha", R"(, "lang": "es")"));
  EXPECT_THAT(shown(check({train}, {other}, false)), ::testing::IsEmpty()) << "a word of another language";
}

TEST_F(CheckFiles, ThreadsDoNotMatter) {
  std::string lines;
  for (int i = 0; i < 30; ++i) {
    wav("f" + std::string(static_cast<std::size_t>(i), 'x') + ".wav", 0.05 + 0.01 * i, i % 3 ? 0.3f : 0.f);
    lines += line("f" + std::string(static_cast<std::size_t>(i), 'x') + ".wav", i % 2 ? "text" : "");
  }
  const auto m = manifest("m.jsonl", lines);
  const auto one = shown(check({m}, {}, true, 1));
  EXPECT_GT(one.size(), 20u);
  EXPECT_EQ(one, shown(check({m}, {}, true, 4)));
}

}  // namespace
}  // namespace chorus
