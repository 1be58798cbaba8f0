// Manifests with sound in tar shards, mixtures of them, and training batches from both.
#include <chorus/core/rng.h>
#include <chorus/io/inputs.h>
#include <chorus/io/loader.h>
#include <chorus/io/shards.h>
#include <gmock/gmock.h>

#include <fstream>
#include <map>

#include "unit/io/files_fixture.h"

namespace chorus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Braces, Expand) {
  const auto expand = [](const std::string& pattern) {
    std::vector<std::string> out;
    for (const auto& path : expand_braces(pattern)) out.push_back(path.string());
    return out;
  };
  EXPECT_THAT(expand("plain.tar"), ElementsAre("plain.tar"));
  EXPECT_THAT(expand("a_{8..11}.tar"), ElementsAre("a_8.tar", "a_9.tar", "a_10.tar", "a_11.tar"));
  EXPECT_THAT(expand("d/audio__OP_0..2_CL_.tar"), ElementsAre("d/audio_0.tar", "d/audio_1.tar", "d/audio_2.tar"));
  EXPECT_THAT(expand("s-{008..010}.tar"), ElementsAre("s-008.tar", "s-009.tar", "s-010.tar"));
  EXPECT_THAT(expand("{1..2}/{0..1}"), ElementsAre("1/0", "1/1", "2/0", "2/1"));
  for (const char* bad : {"a_{3..1}", "a_{1..}", "a_{1,2}", "a_{x..y}", "a_{1..2", "a_{-1..2}", "a_{0..99999999}"})
    EXPECT_THAT(error_of([&] { expand_braces(bad); }), HasSubstr(bad)) << bad;
  EXPECT_EQ(shard_number("d3/audio_12.tar"), 12);
  EXPECT_EQ(shard_number("s-000004.tar"), 4);
  EXPECT_EQ(shard_number("v2_shard_7_en.tar"), 7) << "the last digits, as NeMo takes them";
  EXPECT_EQ(shard_number("all.tar"), -1);
}

/// Twenty-four recordings in two languages: as files with one manifest a language, and as three tar shards with one manifest.
struct Inputs : ::testing::Test {
  static constexpr int count = 24;
  TemporaryFolder folder;
  std::vector<std::string> told;
  FeatureConfig features;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Frontend> frontend;

  Inputs() {
    features.sample_rate = 8000, features.n_fft = 256, features.mels = 8, features.dither = 0.01;
    frontend = std::make_unique<Frontend>(features);
    std::vector<std::string> texts;
    std::vector<ManifestEntry> all;
    for (int i = 0; i < count; ++i) {
      RandomStream random(random_key(3, "inputs_test"), static_cast<std::uint64_t>(i));
      std::vector<float> x(1200 + random.below(3000));
      for (float& v : x) v = static_cast<float>(0.1 * random.normal());
      const std::string name = "r" + std::to_string(i) + ".wav";
      write_wav(path(name), x, 8000);
      texts.push_back("text " + std::string(1, static_cast<char>('a' + i)));
      all.push_back({.audio = name,
                     .text = texts.back(),
                     .duration = static_cast<double>(x.size()) / 8000,
                     .lang = i < 16 ? "en" : "fr"});
      all.back().shard = i % 3;
    }
    for (int shard = 0; shard < 3; ++shard) {
      std::string names;
      for (int i = shard; i < count; i += 3) names += " r" + std::to_string(i) + ".wav";
      run("tar -cf audio_" + std::to_string(shard) + ".tar" + names);
    }
    write_manifest(path("tarred.jsonl"), all);
    for (ManifestEntry& entry : all) entry.shard = -1;
    write_manifest(path("en.jsonl"), std::span(all).first(16));
    write_manifest(path("fr.jsonl"), std::span(all).subspan(16));
    write_manifest(path("all.jsonl"), all);
    tokenizer = std::make_unique<Tokenizer>(train_tokenizer(texts, {.type = "char"}));
  }
  std::filesystem::path path(const std::string& name) const { return folder.path / name; }
  void run(const std::string& command) const {
    require(std::system(("cd '" + folder.path.string() + "' && " + command).c_str()) == 0, "test", command);
  }
  static InputConfig input(const std::filesystem::path& manifest, const std::filesystem::path& tars = {}) {
    InputConfig out;
    out.manifest_filepath = manifest.string();
    out.tarred_audio_filepaths = tars.string();
    return out;
  }
  std::vector<ManifestEntry> read(const InputConfig& config, int source = 0) {
    return read_input(
        config, Content::speech, [&](const std::string& line) { told.push_back(line); }, source);
  }
  std::vector<ManifestEntry> tarred() { return read(input(path("tarred.jsonl"), path("audio__OP_0..2_CL_.tar"))); }

  /// All batches of the first epochs from `start` on.
  std::vector<LoadedBatch> batches(const std::vector<ManifestEntry>& entries, const Mixing& mixing = {},
                                   DataCursor start = {}) {
    BatchConfig c;
    c.batch_frames = 120, c.speed_factors = {0.9, 1, 1.1}, c.concat_probability = 0.4, c.concat_seconds = 0.4;
    SampleOptions options;
    options.seed = 7;
    const SampleMaker maker(entries, *frontend, *tokenizer, options);
    const BatchPlanner planner(
        c, maker.utterances(), 7, 8000, [&](std::int64_t n) { return frontend->frames(n); }, mixing);
    Loader loader(planner, maker, {.threads = 2}, start, 3);
    std::vector<LoadedBatch> out;
    while (auto batch = loader.next()) out.push_back(std::move(*batch));
    return out;
  }
};

void expect_equal(const LoadedBatch& a, const LoadedBatch& b) {
  EXPECT_EQ(a.cursor, b.cursor);
  ASSERT_EQ(a.microbatches.size(), b.microbatches.size());
  for (std::size_t m = 0; m < a.microbatches.size(); ++m) {
    EXPECT_EQ(a.microbatches[m].ids, b.microbatches[m].ids);
    EXPECT_EQ(a.microbatches[m].features, b.microbatches[m].features);
    EXPECT_EQ(a.microbatches[m].texts, b.microbatches[m].texts);
  }
}
void expect_equal(const std::vector<LoadedBatch>& a, const std::vector<LoadedBatch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) expect_equal(a[i], b[i]);
}

TEST_F(Inputs, ShardsGiveTheSameBatchesAsFiles) {
  const auto files = batches(read(input(path("all.jsonl"))));
  expect_equal(files, batches(tarred()));
  EXPECT_TRUE(std::filesystem::exists(path("audio_1.tar.chorus.idx")));
  std::filesystem::remove_all(path("audio_1.tar.chorus.idx"));
  // One manifest for each shard, and entries that name their shard themselves.
  run("for i in 0 1 2; do grep '\"shard_id\":'$i tarred.jsonl > m_$i.jsonl; done");
  const auto pairs = read(input(path("m_{0..2}.jsonl"), path("audio_{0..2}.tar")));
  run("sed 's/\"shard_id\":\\([0-9]\\)/\"tarred_audio_filepath\":\"audio_\\1.tar\"/' tarred.jsonl > own.jsonl");
  expect_equal(files, batches(read(input(path("own.jsonl")))));
  ASSERT_EQ(pairs.size(), 24u);
  EXPECT_EQ(read_audio(pairs[0], 8000), read_audio(path("r0.wav"), 8000));
  std::vector<float> streamed;
  AudioStream stream = open_audio(pairs[9], 16000);
  while (stream.read(streamed, 777) == 777) {
  }
  EXPECT_EQ(streamed, read_audio(path("r4.wav"), 16000));
  EXPECT_EQ(audio_name(pairs[8]), path("audio_1.tar").string() + ":r1.wav");
  EXPECT_EQ(audio_info(pairs[8]).frames, audio_info(path("r1.wav")).frames);
  EXPECT_THAT(told, ::testing::IsEmpty());
}

TEST_F(Inputs, ManifestsAndShardsMustFit) {
  const auto error = [&](const InputConfig& config) { return error_of([&] { read(config); }); };
  EXPECT_THAT(error(input(path("tarred.jsonl"))),
              HasSubstr("tarred.jsonl:1: field 'shard_id' is 0: the sound lies in a tar file"));
  EXPECT_THAT(error(input(path("all.jsonl"), path("audio_{0..2}.tar"))),
              HasSubstr("has no shard_id, and its sound may be in any of 3"));
  EXPECT_THAT(error(input(path("tarred.jsonl"), path("audio_{0..1}.tar"))),
              HasSubstr("has shard_id 2; the tar files have 0 to 1"));
  EXPECT_THAT(error(input(path("m_{0..1}.jsonl"), path("audio_{0..2}.tar"))), HasSubstr("2 manifests"));
  EXPECT_THAT(error(input(path("tarred.jsonl"), path("{0..1}/audio_3.tar"))), HasSubstr("same shard number 3"));
}

TEST_F(Inputs, MissingAndDamagedShardsCostTheirSamplesAndAreNamed) {
  const auto whole = batches(tarred());
  std::filesystem::remove(path("audio_1.tar"));
  std::filesystem::resize_file(path("audio_2.tar"), std::filesystem::file_size(path("audio_2.tar")) / 2);
  const auto entries = tarred();
  ASSERT_EQ(entries.size(), 24u) << "what an epoch holds doesn't depend on the disk";
  ASSERT_EQ(told.size(), 2u);
  EXPECT_THAT(told[0], ::testing::AllOf(HasSubstr("audio_1.tar"), HasSubstr("8 of its 8 recordings can't be read")));
  EXPECT_THAT(told[1], ::testing::AllOf(HasSubstr("audio_2.tar: the file ends inside r"), HasSubstr("of its 8 recordings")));
  const auto rest = batches(entries);
  ASSERT_EQ(rest.size(), whole.size());
  std::int64_t failed = 0, kept = 0, all = 0;
  std::string failures;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    failed += rest[i].drops.failed, kept += rest[i].counts.samples, all += whole[i].counts.samples;
    for (const std::string& line : rest[i].failures) failures += line + '\n';
    std::map<std::int64_t, std::string> texts;
    for (const auto& m : whole[i].microbatches)
      for (std::size_t k = 0; k < m.ids.size(); ++k) texts[m.ids[k]] = m.texts[k];
    for (const auto& m : rest[i].microbatches)
      for (std::size_t k = 0; k < m.ids.size(); ++k) EXPECT_EQ(texts.at(m.ids[k]), m.texts[k]) << "batch " << i;
  }
  EXPECT_EQ(kept + failed, all);
  EXPECT_GT(failed, 0);
  EXPECT_THAT(failures, ::testing::AllOf(HasSubstr("audio_1.tar"), HasSubstr("does not exist"), HasSubstr("audio_2.tar"),
                                       HasSubstr("has no member")));
}

TEST_F(Inputs, MixturesResumeAnywhereBitByBit) {
  auto entries = tarred();
  std::erase_if(entries, [](const ManifestEntry& e) { return e.lang != "en"; });
  for (ManifestEntry& e : read(input(path("fr.jsonl")), 1)) entries.push_back(std::move(e));
  const Mixing mixing{{1, 2}, 0.5};
  const auto straight = batches(entries, mixing);
  ASSERT_GT(straight.size(), 12u);
  std::map<std::string, int> heard;
  for (std::size_t i = 0; i < straight.size(); ++i) {
    std::set<std::int64_t> ids;
    for (const auto& m : straight[i].microbatches)
      for (const std::int64_t id : m.ids) EXPECT_TRUE(ids.insert(id).second) << "id " << id << " twice in a batch";
    if (i % 3 == 0) {
      const auto resumed = batches(entries, mixing, straight[i].cursor);
      expect_equal(resumed, {straight.begin() + static_cast<std::ptrdiff_t>(i), straight.end()});
    }
  }
}

TEST_F(Inputs, DrawnTwiceMeansAugmentedTwice) {
  auto entries = read(input(path("en.jsonl")));
  for (ManifestEntry& e : read(input(path("fr.jsonl")), 1)) entries.push_back(std::move(e));
  SampleOptions options;
  options.seed = 7;
  const SampleMaker maker(entries, *frontend, *tokenizer, options);
  BatchConfig c;
  c.global_batch_size = 4, c.speed_factors = {0.9, 1, 1.1};
  const BatchPlanner planner(c, maker.utterances(), 7, 8000, [&](std::int64_t n) { return frontend->frames(n); }, {{1, 3}, 1});
  EXPECT_THAT(planner.mixer().shares(), ElementsAre(6, 18));
  std::map<std::int64_t, std::vector<Sample>> of_entry;
  std::set<std::int64_t> ids;
  for (const GlobalBatch& batch : planner.epoch(0).batches)
    for (const Sample& s : batch) {
      EXPECT_TRUE(ids.insert(s.id).second) << "id " << s.id << " twice in an epoch";
      EXPECT_EQ(s.id, s.parts[0].entry + 24 * s.parts[0].repeat);
      of_entry[s.parts[0].entry].push_back(s);
    }
  EXPECT_EQ(ids.size(), 24u);
  int again = 0;
  for (const auto& [entry, samples] : of_entry)
    for (std::size_t k = 1; k < samples.size(); ++k, ++again) {
      EXPECT_GE(entry, 16) << "only the small source repeats";
      EXPECT_NE(maker(samples[0], 0).features, maker(samples[k], 0).features) << "entry " << entry;
      EXPECT_EQ(maker(samples[0], 0).text, maker(samples[k], 0).text);
    }
  EXPECT_GE(again, 10);
}

TEST_F(Inputs, OneSourceOfAnyWeightIsThePlainManifest) {
  const auto plain = batches(read(input(path("all.jsonl"))));
  expect_equal(plain, batches(read(input(path("all.jsonl"))), {{1}, 1}));
  expect_equal(plain, batches(read(input(path("all.jsonl"))), {{0.3}, 0}));
}

TEST_F(Inputs, LanguagesComeFromEntriesOrElseFromTheInput) {
  run("sed 's/,\"lang\":\"en\"//' en.jsonl > bare.jsonl");
  InputConfig config = input(path("bare.jsonl"));
  config.lang = "xx";
  EXPECT_EQ(read(config, 4).at(3).lang, "xx");
  EXPECT_EQ(read(config, 4).at(3).source, 4);
  config.manifest_filepath = path("en.jsonl").string();
  EXPECT_EQ(read(config).at(3).lang, "en");
}

}  // namespace
}  // namespace chorus
