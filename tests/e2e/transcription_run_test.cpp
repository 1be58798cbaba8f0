// Recordings of any length: chunks are what they are apart, memory doesn't grow, and one bad file costs only itself.
#include <chorus/apps/commands.h>
#include <chorus/apps/evaluator.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "e2e/tiny_run.h"

namespace chorus {
namespace {
using namespace testing;

std::string content(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<float> song(int letters) {
  std::string text;
  for (int i = 0; i < letters; ++i) text += static_cast<char>('a' + (i * i / 3 + i) % 4);
  return sing(text);
}

TranscriptionJob job(const std::filesystem::path& file) {
  return {file.string(), [file] { return AudioStream::open(file, tone_rate); }};
}

struct Told {
  std::vector<std::vector<Segment>> segments;
  std::vector<std::string> problems;
  std::vector<std::size_t> order;
  TranscriptionTotals totals;
};

Told told(const Transcriber& transcriber, const std::vector<TranscriptionJob>& jobs, const TranscriptionOptions& options) {
  Told out;
  out.segments.resize(jobs.size());
  out.problems.resize(jobs.size());
  const TranscriptionHooks hooks{[&](std::size_t i, const Segment& segment) {
                                   out.segments[i].push_back(segment);
                                   out.order.push_back(i);
                                 },
                                 [&](std::size_t i, double, const std::string& problem) {
                                   out.problems[i] = problem;
                                   out.order.push_back(i);
                                 }};
  out.totals = transcribe_all(transcriber, jobs, options, hooks);
  return out;
}

/// The same run with values of another type.
std::filesystem::path with_precision(const std::filesystem::path& run, const std::string& precision) {
  const std::filesystem::path other = run.string() + '_' + precision;
  std::filesystem::copy(run, other, std::filesystem::copy_options::recursive);
  std::string toml = content(run / "config.toml");
  const std::string before = "precision = \"fp32\"";
  require(toml.find(before) != toml.npos, "test", "no ", before);
  toml.replace(toml.find(before), before.size(), "precision = \"" + precision + '"');
  std::ofstream(other / "config.toml") << toml;
  return other;
}

class TranscriptionRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder = new Folder("transcription");
    const auto corpus = write_corpus(folder->path);
    train(tiny(corpus, folder->path / "run",
               {"phases[0].steps=90", "phases[1].steps=110", "batches.concat_probability=0", "phases[1].schedule.lr=1e-2"}),
          {});
    run = new LoadedRun(load_run(folder->path / "run", [](const std::string& line) { ADD_FAILURE() << line; }));
  }
  static void TearDownTestSuite() {
    delete run;
    delete folder;
  }
  static std::filesystem::path file(const std::string& name) { return folder->path / name; }
  static TranscriptionOptions options(double chunk, double batch, bool words = false) {
    return {chunk_options({.chunk = chunk, .shortest = 0.1}, run->config), batch, words};
  }
  static inline Folder* folder = nullptr;
  static inline LoadedRun* run = nullptr;
};

TEST_F(TranscriptionRun, ChunksOfALongRecordingAreWhatTheyAreApart) {
  write_wav(file("long.wav"), song(40), tone_rate);
  const auto samples = read_audio(file("long.wav"), tone_rate);
  const double chunk = 0.75;  // not where a tone ends
  std::vector<TranscriptionJob> apart;
  for (std::size_t begin = 0, i = 0; begin < samples.size(); begin += 6000, ++i) {
    const auto part = std::span(samples).subspan(begin, std::min<std::size_t>(6000, samples.size() - begin));
    const auto name = file("part" + std::to_string(i) + ".wav");
    write_wav(name, part, tone_rate);
    const auto written = read_audio(name, tone_rate);
    ASSERT_TRUE(std::equal(written.begin(), written.end(), part.begin(), part.end())) << i;
    apart.push_back(job(name));
  }
  for (const std::string precision : {"fp32", "fp64"}) {
    const LoadedRun other = load_run(precision == "fp32" ? file("run") : with_precision(file("run"), precision), [](auto&) {});
    const Told together = told(*other.transcriber, {job(file("long.wav"))}, options(chunk, 0, true));
    const Told batched = told(*other.transcriber, {job(file("long.wav"))}, options(chunk, 1000, true));
    const Told alone = told(*other.transcriber, apart, options(0, 0, true));
    ASSERT_EQ(together.segments[0].size(), apart.size());
    ASSERT_EQ(batched.segments[0].size(), apart.size());
    std::size_t letters = 0;
    for (std::size_t i = 0; i < apart.size(); ++i) {
      ASSERT_EQ(alone.segments[i].size(), 1u);
      const Transcript &a = together.segments[0][i].transcript, &b = alone.segments[i][0].transcript,
                       &c = batched.segments[0][i].transcript;
      const std::string what = precision + ", chunk " + std::to_string(i);
      EXPECT_EQ(a.text, b.text) << what;
      EXPECT_EQ(a.ctc, b.ctc) << what;
      EXPECT_EQ(a.text_log_p, b.text_log_p) << what;
      EXPECT_EQ(a.ctc_log_p, b.ctc_log_p) << what;
      EXPECT_EQ(c.text, b.text) << what;
      EXPECT_EQ(c.ctc, b.ctc) << what;
      EXPECT_NEAR(c.text_log_p, b.text_log_p, precision == "fp64" ? 1e-12 : 1e-4) << what;
      EXPECT_NEAR(c.ctc_log_p, b.ctc_log_p, precision == "fp64" ? 1e-12 : 1e-4) << what;
      EXPECT_DOUBLE_EQ(together.segments[0][i].start, 0.75 * static_cast<double>(i));
      ASSERT_EQ(a.ctc_words.size(), b.ctc_words.size()) << what;
      for (std::size_t w = 0; w < b.ctc_words.size(); ++w) {
        EXPECT_EQ(a.ctc_words[w].text, b.ctc_words[w].text) << what;
        EXPECT_NEAR(a.ctc_words[w].start, b.ctc_words[w].start + together.segments[0][i].start, 1e-12) << what;
      }
      EXPECT_EQ(a.ctc.empty(), a.ctc_words.empty()) << what;
      letters += a.ctc.size();
    }
    EXPECT_GT(letters, 20u) << "a model that hears nothing proves nothing";
    EXPECT_NEAR(together.totals.sound_seconds, 6.4, 1e-9);
  }
}

TEST_F(TranscriptionRun, TheModelSaysHowItIsCutAndNobodyElseMinds) {
  RunConfig config = run->config;
  config.model.encoder_chunk_size_seconds = 2.5;
  EXPECT_EQ(chunk_options({}, config).chunk, 20000);
  EXPECT_EQ(chunk_options({.chunk = 1.25}, config).chunk, 10000) << "the command line overrides the model";
  EXPECT_EQ(chunk_options({.chunk = 0}, config).chunk, 0);
  EXPECT_EQ(chunk_options({.shortest = 0}, config).shortest, 360) << "two feature frames";
  EXPECT_NO_THROW(claim_run_folder(file("run"), config)) << "training goes on as it was";
  EXPECT_NO_THROW(claim_run_folder(file("run"), run->config));
  for (const CutOptions& wrong : {CutOptions{.chunk = -1}, CutOptions{.chunk = 0.4}, CutOptions{.chunk = 1, .quiet = 0.6}})
    EXPECT_THROW(chunk_options(wrong, config), Error);
}

TEST_F(TranscriptionRun, WordTimesAreWhereTheTonesAre) {
  write_wav(file("word.wav"), sing("bdac"), tone_rate);
  const Told heard = told(*run->transcriber, {job(file("word.wav"))}, options(0, 0, true));
  const auto& words = heard.segments[0][0].transcript.ctc_words;
  ASSERT_EQ(words.size(), 1u) << "the corpus knows no spaces";
  EXPECT_LT(words[0].start, 0.16) << "within the first tone";
  EXPECT_GT(words[0].end, 0.48) << "within the last one";
  EXPECT_LE(words[0].end, 0.64);
}

/// Sound without end, the same in every chunk.
class Endless : public SoundSource {
 public:
  explicit Endless(std::int64_t samples, std::int64_t* read = nullptr) : left_(samples), read_(read), tones_(sing("acbdb")) {
    sample_rate_ = tone_rate;
  }
  std::size_t read(std::span<float> mono) override {
    std::size_t i = 0;
    for (; i < mono.size() && left_ > 0; --left_) mono[i++] = tones_[at_++ % tones_.size()];
    if (read_) *read_ += static_cast<std::int64_t>(i);
    return i;
  }

 private:
  std::int64_t left_, *read_;
  std::size_t at_ = 0;
  std::vector<float> tones_;  // 0.8 s
};

TEST_F(TranscriptionRun, MemoryDoesNotDependOnTheLength) {
  const auto peak = [&](double seconds, double chunk) {
    run->context->memory.reset_peak();
    const TranscriptionJob endless{
        "endless",
        [&] { return AudioStream(std::make_unique<Endless>(static_cast<std::int64_t>(seconds * tone_rate)), tone_rate); }};
    const Told heard = told(*run->transcriber, {endless}, options(chunk, 3.2));
    EXPECT_EQ(heard.problems[0], "");
    EXPECT_NEAR(heard.totals.sound_seconds, seconds, 1e-9);
    return run->context->memory.stats().peak_total;
  };
  peak(6.4, 0.8);  // matrix products are prepared once
  const std::size_t shorter = peak(12.8, 0.8), longer = peak(128, 0.8), whole = peak(12.8, 0);
  EXPECT_EQ(longer, shorter);
  EXPECT_GT(whole, 2 * shorter) << "without chunks it does depend";
}

TEST_F(TranscriptionRun, ALiveRecordingIsToldChunkByChunk) {
  std::int64_t read = 0;
  const TranscriptionJob live{
      "live", [&] { return AudioStream(std::make_unique<Endless>(std::int64_t{10} * tone_rate, &read), tone_rate); }};
  std::vector<std::int64_t> when;
  const TranscriptionHooks hooks{[&](std::size_t, const Segment&) { when.push_back(read); }, {}};
  transcribe_all(*run->transcriber, std::span(&live, 1), options(1, 0), hooks);
  ASSERT_EQ(when.size(), 10u);
  constexpr std::int64_t tail = tone_rate / 10, block = 4096;
  for (std::size_t i = 0; i < when.size(); ++i)
    EXPECT_LE(when[i], static_cast<std::int64_t>(i + 1) * tone_rate + tail + block) << "before the rest was read";
}

TEST_F(TranscriptionRun, ARecordingThatFailsCostsOnlyItself) {
  write_wav(file("good.wav"), sing("abcd"), tone_rate);
  write_wav(file("cut.wav"), song(12), tone_rate);
  std::filesystem::resize_file(file("cut.wav"), 44 + 2 * tone_rate);  // a second of 1.92
  write_wav(file("tiny.wav"), std::vector<float>(20), tone_rate);
  const std::vector<TranscriptionJob> jobs{job(file("good.wav")), job(file("none.wav")), job(file("cut.wav")),
                                           job(file("tiny.wav")), job(file("good.wav"))};
  for (const double batch : {0.0, 60.0}) {
    const Told heard = told(*run->transcriber, jobs, options(0.8, batch));
    EXPECT_EQ(heard.order, (std::vector<std::size_t>{0, 0, 1, 2, 2, 2, 3, 4, 4})) << "in the order of the inputs";
    EXPECT_EQ(heard.totals.failed, 3);
    EXPECT_EQ(heard.problems[0] + heard.problems[4], "");
    EXPECT_NE(heard.problems[1].find("does not exist"), std::string::npos) << heard.problems[1];
    EXPECT_NE(heard.problems[2].find("its header promises"), std::string::npos) << heard.problems[2];
    EXPECT_NE(heard.problems[3].find("no feature frame"), std::string::npos) << heard.problems[3];
    EXPECT_EQ(heard.segments[0][0].transcript.text, heard.segments[4][0].transcript.text);
    EXPECT_EQ(heard.segments[2].size(), 2u) << "what is there of a truncated file is heard";
  }
  const Told whole = told(*run->transcriber, {job(file("good.wav")), job(file("cut.wav"))},
                          {chunk_options({.chunk = 0, .longest = 0.7}, run->config), 60});
  EXPECT_EQ(whole.problems[0], "");
  EXPECT_NE(whole.problems[1].find("longer than 0.7 s"), std::string::npos) << whole.problems[1];
}

TEST_F(TranscriptionRun, CommandWritesJsonAndManifest) {
  write_wav(file("one.wav"), song(10), tone_rate);
  std::ofstream(file("some.jsonl")) << R"({"audio_filepath": "one.wav", "text": "abc", "mood": "glad"})" << '\n'
                                    << R"({"audio_filepath": "nothing.wav", "text": "d"})" << '\n';
  TranscribeOptions command;
  command.run = file("run");
  command.inputs = {file("one.wav")};
  command.manifest = file("some.jsonl");
  command.format = "json";
  command.output = file("out.json");
  command.output_manifest = file("out.jsonl");
  command.word_times = true;
  command.hearing.chunk_seconds = 0.8;
  command.threads = 1;
  EXPECT_EQ(run_transcribe(command), 1) << "one is missing";
  const auto json = nlohmann::json::parse(content(file("out.json")));
  ASSERT_EQ(json.size(), 3u);
  EXPECT_EQ(json[0]["segments"].size(), 2u);
  EXPECT_EQ(json[0]["segments"][1]["start"], 0.8);
  EXPECT_EQ(json[0]["segments"][1]["end"], 1.6);
  EXPECT_EQ(json[0]["duration"], 1.6);
  EXPECT_LT(json[0]["segments"][0]["avg_logprob"], 0);
  EXPECT_EQ(json[0]["text"], json[1]["text"]);
  EXPECT_TRUE(json[2].contains("error"));
  std::istringstream lines(content(file("out.jsonl")));
  std::string line;
  std::vector<nlohmann::json> entries;
  while (std::getline(lines, line)) entries.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[1]["mood"], "glad");
  EXPECT_EQ(entries[1]["text"], "abc");
  EXPECT_EQ(entries[1]["pred_text"], json[1]["text"]);
}

TEST_F(TranscriptionRun, CommandWritesAFileForEachRecording) {
  TranscribeOptions command;
  command.run = file("run");
  command.inputs = {file("abc.wav"), file("bcd.wav")};
  command.format = "srt";
  command.threads = 1;
  EXPECT_THROW(run_transcribe(command), Error) << "subtitles of two recordings in one file";
  command.output_dir = file("new/folder");
  EXPECT_EQ(run_transcribe(command), 0);
  for (const std::string name : {"abc", "bcd"})
    EXPECT_EQ(content(file("new/folder/" + name + ".srt")).substr(0, 32), "1\n00:00:00,000 --> 00:00:00,480\n") << name;
  command.inputs = {file("abc.wav"), file("other/abc.wav")};
  EXPECT_THROW(run_transcribe(command), Error) << "both would be abc.srt";
}

TEST_F(TranscriptionRun, CommandHearsAPipe) {
  write_wav(file("piped.wav"), song(10), tone_rate);
  std::string bytes = content(file("piped.wav"));
  for (const std::size_t at : {4u, 40u}) bytes.replace(at, 4, "\xFF\xFF\xFF\xFF");  // as ffmpeg writes into pipes
  TranscribeOptions command;
  command.run = file("run");
  command.inputs = {file("piped.wav")};
  command.format = "jsonl";
  command.hearing.chunk_seconds = 0.8;
  command.threads = 1;
  command.output = file("file.jsonl");
  EXPECT_EQ(run_transcribe(command), 0);
  for (const std::size_t length : {bytes.size(), std::size_t{44 + 22801}}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const int before = ::dup(STDIN_FILENO);
    ::dup2(ends[0], STDIN_FILENO);
    ::close(ends[0]);
    std::thread writer([&] {
      for (std::size_t i = 0; i < length;) {
        const auto n = ::write(ends[1], bytes.data() + i, std::min<std::size_t>(1000, length - i));
        if (n <= 0) break;
        i += static_cast<std::size_t>(n);
      }
      ::close(ends[1]);
    });
    command.inputs = {"-"};
    command.output = file("pipe.jsonl");
    EXPECT_EQ(run_transcribe(command), length == bytes.size() ? 0 : 1);
    writer.join();
    ::dup2(before, STDIN_FILENO);
    ::close(before);
    std::string piped = content(file("pipe.jsonl")), expected = content(file("file.jsonl"));
    const std::string name = nlohmann::json(file("piped.wav").string()).dump();
    for (auto at = expected.find(name); at != expected.npos; at = expected.find(name))
      expected.replace(at, name.size(), "\"-\"");
    if (length == bytes.size()) {
      EXPECT_EQ(piped, expected);
    } else {
      EXPECT_EQ(piped.substr(0, piped.find('\n')), expected.substr(0, expected.find('\n'))) << "what came before is given";
      EXPECT_NE(piped.find("ended within a sample"), piped.npos) << piped;
    }
  }
}

TEST_F(TranscriptionRun, EvaluateWritesFiguresAndManifest) {
  std::ofstream(file("scored.jsonl")) << R"({"audio_filepath": "abc.wav", "text": "abc", "lang": "x"})" << '\n'
                                      << R"({"audio_filepath": "bcd.wav", "source": "here"})" << '\n';
  EvaluateOptions command;
  command.run = file("run");
  command.manifest = file("scored.jsonl");
  command.threads = 1;
  command.json = file("figures.json");
  command.output_manifest = file("heard.jsonl");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_evaluate(command), 0);
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(said.find("scored.jsonl: 2 recordings"), said.npos) << said;
  EXPECT_NE(said.find("1 without reference: transcribed, not scored"), said.npos) << said;
  EXPECT_NE(said.find("x, 1 "), said.npos) << said;
  EXPECT_NE(said.find("figure evaluate_cer "), said.npos) << said;
  const auto figures = nlohmann::json::parse(content(file("figures.json")));
  EXPECT_EQ(figures["scored"], 1);
  EXPECT_EQ(figures["without_reference"], 1);
  EXPECT_EQ(figures["decoder"]["characters"], 3);
  EXPECT_TRUE(figures["decoder"]["loss"].is_number());
  const std::string heard = content(file("heard.jsonl"));
  const auto second = nlohmann::json::parse(heard.substr(heard.find('\n') + 1));
  EXPECT_EQ(second["source"], "here");
  EXPECT_FALSE(second["pred_text"].get<std::string>().empty());

  std::ofstream(file("scored.jsonl"), std::ios::app) << R"({"audio_filepath": "nothing.wav", "text": "d"})" << '\n';
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_evaluate(command), 1) << "figures without a recording are not those of the manifest";
  const std::string less = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(less.find("1 dropped"), less.npos) << less;
  std::ofstream(file("scored.jsonl"), std::ios::app) << "nonsense\n";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_evaluate(command), 1);
  const std::string rest = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(rest.find("1 lines of the manifest dropped"), rest.npos) << rest;
}

TEST_F(TranscriptionRun, EvaluationCountsWhatItCannotScore) {
  std::vector<TranscriptSource> sources;
  const auto add = [&](const std::string& name, const std::string& text, const std::string& lang) {
    sources.push_back({.entry = {.audio = file(name), .text = text, .lang = lang}});
  };
  write_wav(file("long.wav"), sing("abcddcba"), tone_rate);
  add("abc.wav", "abc", "x");
  add("bcd.wav", "", "x");
  add("none.wav", "d", "y");
  add("dab.wav", "dab", "y");
  add("long.wav", "abcddcba", "y");
  const Evaluation e = evaluate(*run->transcriber, sources, options(0.64, 60));
  EXPECT_EQ(e.scored, 3);
  EXPECT_EQ(e.with_loss, 2);
  EXPECT_EQ(e.without_reference, 1);
  EXPECT_EQ(e.failed, 1);
  EXPECT_FALSE(e.entries[1].ctc.empty()) << "transcribed all the same";
  EXPECT_EQ(e.entries[4].segments, 2);
  ASSERT_EQ(e.languages.size(), 2u);
  EXPECT_EQ(e.languages.at("x").recordings, 1);
  EXPECT_EQ(e.languages.at("y").recordings, 2);
  EXPECT_EQ(e.languages.at("y").ctc.characters.reference, 11);
  EXPECT_EQ(e.ctc.characters.reference, 14);
  // The loss is that of the recordings heard whole, together.
  const std::vector<Recording> whole{run->transcriber->recording(sources[0].entry),
                                     run->transcriber->recording(sources[3].entry)};
  const Losses expected = run->transcriber->losses(whole);
  EXPECT_NEAR(e.llm_loss, expected.llm, 1e-5);
  EXPECT_NEAR(e.ctc_loss, expected.ctc, 1e-5);
  EXPECT_EQ(e.labels, expected.counts.labels);
  EXPECT_EQ(e.text_bytes, 6);
  const auto json = nlohmann::json::parse(evaluation_json(e, "m", 3));
  EXPECT_EQ(json["without_reference"], 1);
  EXPECT_EQ(json["languages"]["y"]["recordings"], 2);
}

}  // namespace
}  // namespace chorus
