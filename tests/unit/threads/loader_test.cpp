#include <chorus/core/rng.h>
#include <chorus/io/audio.h>
#include <chorus/io/loader.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <map>

namespace chorus {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

FeatureConfig feature_config(double dither, const std::string& normalize = "per_feature") {
  FeatureConfig c;
  c.sample_rate = 8000;
  c.n_fft = 256;
  c.mels = 16;
  c.dither = dither;
  c.normalize = normalize;
  return c;
}

/// Thirty noisy recordings of 0.1 to 0.9 s.
struct LoaderFiles : ::testing::Test {
  static constexpr int count = 30;
  std::filesystem::path folder = std::filesystem::temp_directory_path() / ("chorus_loader_test." + std::to_string(getpid()));
  std::vector<ManifestEntry> entries;
  std::unique_ptr<Tokenizer> tokenizer;
  Frontend frontend{feature_config(0)};

  LoaderFiles() {
    std::filesystem::create_directories(folder);
    std::vector<std::string> texts;
    for (int i = 0; i < count; ++i) {
      RandomStream random(random_key(3, "loader_test"), i);
      std::vector<float> x(800 + random.below(6400));
      for (float& v : x) v = static_cast<float>(0.1 * random.normal());
      const auto file = folder / (std::to_string(i) + ".wav");
      write_wav(file, x, 8000);
      std::string text = "text ";
      for (std::size_t k = 0; k < 1 + random.below(6); ++k) text += static_cast<char>('a' + random.below(26));
      entries.push_back({file, text, 0, static_cast<double>(x.size()) / 8000, "en", {}});
      texts.push_back(text);
    }
    tokenizer = std::make_unique<Tokenizer>(train_tokenizer(texts, {.type = "char"}));
  }
  ~LoaderFiles() override { std::filesystem::remove_all(folder); }

  SampleOptions options() const {
    SampleOptions o;
    o.seed = 11;
    o.spec_augment = {1, 4, 2, 0, 10, 0.2};
    return o;
  }
  BatchConfig batches() const {
    BatchConfig c;
    c.batch_frames = 150;
    c.speed_factors = {0.9, 1, 1.1};
    c.concat_probability = 0.5;
    c.concat_seconds = 1;
    return c;
  }
  BatchPlanner planner(const SampleMaker& maker) const {
    return {batches(), maker.utterances(), 11, 8000, [this](std::int64_t n) { return frontend.frames(n); }};
  }
};

void expect_equal(const LoadedBatch& a, const LoadedBatch& b) {
  EXPECT_EQ(a.cursor, b.cursor);
  EXPECT_EQ(a.counts.samples, b.counts.samples);
  EXPECT_EQ(a.counts.frames, b.counts.frames);
  EXPECT_EQ(a.counts.tokens, b.counts.tokens);
  ASSERT_EQ(a.microbatches.size(), b.microbatches.size());
  for (std::size_t m = 0; m < a.microbatches.size(); ++m) {
    EXPECT_EQ(a.microbatches[m].ids, b.microbatches[m].ids);
    EXPECT_EQ(a.microbatches[m].features, b.microbatches[m].features);
    EXPECT_EQ(a.microbatches[m].tokens, b.microbatches[m].tokens);
    EXPECT_EQ(a.microbatches[m].texts, b.microbatches[m].texts);
    EXPECT_EQ(a.microbatches[m].frames_of, b.microbatches[m].frames_of);
  }
}

std::vector<LoadedBatch> all_of(Loader& loader) {
  std::vector<LoadedBatch> out;
  while (auto batch = loader.next()) out.push_back(std::move(*batch));
  return out;
}

TEST_F(LoaderFiles, ThreadsPrefetchAndCacheChangeNothing) {
  const SampleMaker maker(entries, frontend, *tokenizer, options());
  const BatchPlanner plan = planner(maker);
  std::vector<LoadedBatch> want;
  for (int epoch = 0; epoch < 2; ++epoch) {
    const EpochPlan planned = plan.epoch(epoch);
    for (std::size_t b = 0; b < planned.batches.size(); ++b)
      want.push_back(load_batch(planned.batches[b], maker, {}, {epoch, static_cast<std::int64_t>(b)}));
  }
  ASSERT_GT(want.size(), 10u);
  struct Way {
    int threads, prefetch;
    std::size_t cache;
  };
  // Every pair of values occurs.
  for (const auto& [threads, prefetch, cache] : {Way{1, 1, 0}, Way{3, 5, 0}, Way{1, 5, 20000}, Way{3, 1, 20000},
                                                 Way{1, 1, std::size_t{1} << 30}, Way{3, 5, std::size_t{1} << 30}}) {
    SampleOptions o = options();
    o.cache_bytes = cache;
    const SampleMaker fresh(entries, frontend, *tokenizer, o);
    Loader loader(plan, fresh, {.threads = threads, .prefetch = prefetch}, {}, 2);
    const std::vector<LoadedBatch> got = all_of(loader);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      expect_equal(got[i], want[i]);
      if (i + 1 < got.size()) {
        EXPECT_EQ(got[i].next, got[i + 1].cursor);
      }
    }
    EXPECT_EQ(got.back().next, (DataCursor{2, 0}));
    EXPECT_FALSE(loader.next().has_value()) << "the end stays the end";
    EXPECT_LE(fresh.cached_bytes(), cache);
    EXPECT_EQ(fresh.cached_bytes() > 0, cache > 0);
  }
}

TEST_F(LoaderFiles, ResumingAnywhereEqualsTheStraightRun) {
  const SampleMaker maker(entries, frontend, *tokenizer, options());
  const BatchPlanner plan = planner(maker);
  Loader straight(plan, maker, {}, {}, 2);
  const std::vector<LoadedBatch> want = all_of(straight);
  for (std::size_t k = 0; k < want.size(); ++k) {
    Loader resumed(plan, maker, {.threads = 2}, k == 0 ? DataCursor{} : want[k - 1].next, 2);
    const std::vector<LoadedBatch> got = all_of(resumed);
    ASSERT_EQ(got.size(), want.size() - k);
    for (std::size_t i = 0; i < got.size(); ++i) expect_equal(got[i], want[k + i]);
  }
  EXPECT_THAT([&] { Loader(plan, maker, {}, {1, 999}); }, ThrowsMessage<Error>(HasSubstr("batch 999 of epoch 1, which has")));
}

TEST_F(LoaderFiles, TheDealingMovesSamplesWithoutChangingThem) {
  const SampleMaker maker(entries, frontend, *tokenizer, options());
  const BatchPlanner plan = planner(maker);
  const GlobalBatch batch = plan.epoch(0).batches[0];
  for (const int dp : {1, 2, 3, 7})
    for (const int size : {0, 1, 2}) {
      BatchCounts sum;
      std::map<std::int64_t, int> seen;
      std::size_t microbatches = 0;
      for (int rank = 0; rank < dp; ++rank) {
        const LoadedBatch part = load_batch(batch, maker, {.micro_batch_size = size}, {0, 0}, rank, dp);
        if (rank > 0) {
          EXPECT_EQ(part.microbatches.size(), microbatches) << "all ranks run equally many";
        }
        microbatches = part.microbatches.size();
        sum.samples += part.counts.samples, sum.frames += part.counts.frames, sum.tokens += part.counts.tokens;
        for (const Microbatch& micro : part.microbatches) {
          if (size > 0) {
            EXPECT_LE(static_cast<int>(micro.ids.size()), size);
          }
          std::int64_t row = 0;
          for (std::size_t i = 0; i < micro.ids.size(); ++i) {
            ++seen[micro.ids[i]];
            const auto sample = std::find_if(batch.begin(), batch.end(), [&](const Sample& s) { return s.id == micro.ids[i]; });
            const SampleData alone = maker(*sample, 0);
            ASSERT_EQ(alone.frames, micro.frames_of[i]);
            ASSERT_EQ(alone.tokens, micro.tokens[i]);
            for (std::int64_t k = 0; k < alone.frames * 16; ++k)
              ASSERT_EQ(alone.features[k], micro.features[row * 16 + k]) << "sample " << alone.id << " value " << k;
            row += alone.frames;
          }
          EXPECT_EQ(row, micro.frames);
          EXPECT_EQ(static_cast<std::int64_t>(micro.features.size()), row * 16);
        }
      }
      EXPECT_EQ(seen.size(), batch.size());
      const LoadedBatch whole = load_batch(batch, maker, {}, {0, 0});
      EXPECT_EQ(sum.samples, whole.counts.samples);
      EXPECT_EQ(sum.frames, whole.counts.frames);
      EXPECT_EQ(sum.tokens, whole.counts.tokens);
    }
}

TEST_F(LoaderFiles, BatchesInReusedMemoryAreTheSame) {
  std::filesystem::remove(entries[4].audio);
  const SampleMaker maker(entries, frontend, *tokenizer, options());
  const BatchPlanner plan = planner(maker);
  const LoaderConfig config{.micro_batch_size = 3, .threads = 2, .prefetch = 2};
  Loader fresh(plan, maker, config, {}, 3), reusing(plan, maker, config, {}, 3);
  int batches = 0;
  while (const auto want = fresh.next()) {
    auto got = reusing.next();
    ASSERT_TRUE(got);
    ASSERT_EQ(got->microbatches.size(), want->microbatches.size());
    for (std::size_t m = 0; m < want->microbatches.size(); ++m) {
      EXPECT_EQ(got->microbatches[m].features, want->microbatches[m].features) << "batch " << batches << " microbatch " << m;
      EXPECT_EQ(got->microbatches[m].frames_of, want->microbatches[m].frames_of);
    }
    reusing.reuse(std::move(*got));
    ++batches;
  }
  EXPECT_GT(batches, 4) << "too few to meet memory again";
  EXPECT_FALSE(reusing.next());

  // Memory that was handed in is the memory that comes back, also when it held more.
  std::vector<Microbatch> spare(1);
  spare[0].features.assign(1'000'000, 1.0f);
  const float* const memory = spare[0].features.data();
  const LoadedBatch batch = load_batch(plan.epoch(0).batches[0], maker, {}, {0, 0}, 0, 1, std::move(spare));
  EXPECT_EQ(batch.microbatches.at(0).features.data(), memory);
  EXPECT_EQ(std::ssize(batch.microbatches[0].features), batch.microbatches[0].frames * batch.microbatches[0].mels);
}

TEST_F(LoaderFiles, ASampleThatFailsLeavesTheRowsBeforeIt) {
  std::filesystem::remove(entries[7].audio);
  const SampleMaker maker(entries, frontend, *tokenizer, options());
  std::vector<float> rows{1, 2};
  EXPECT_THROW(maker.append({.id = 3, .parts = {{3, 1}, {7, 1}}}, 0, rows), BadSample);
  EXPECT_EQ(rows, (std::vector<float>{1, 2}));
  const SampleData data = maker.append({.id = 3, .parts = {{3, 1}}}, 0, rows);
  const SampleData alone = maker({.id = 3, .parts = {{3, 1}}}, 0);
  EXPECT_TRUE(data.features.empty());
  rows.erase(rows.begin(), rows.begin() + 2);
  EXPECT_EQ(rows, alone.features);
}

TEST_F(LoaderFiles, BadSoundIsDroppedAndCountedOrAnErrorThatNamesIt) {
  std::filesystem::remove(entries[4].audio);
  std::filesystem::resize_file(entries[9].audio, 200);
  const SampleMaker maker(entries, frontend, *tokenizer, options());
  const BatchPlanner plan = planner(maker);
  Loader tolerant(plan, maker, {.threads = 2}, {}, 1);
  std::int64_t samples = 0, planned = 0, failed = 0;
  for (const GlobalBatch& batch : plan.epoch(0).batches) planned += static_cast<std::int64_t>(batch.size());
  std::string failures;
  for (const LoadedBatch& batch : all_of(tolerant)) {
    samples += batch.counts.samples;
    failed += batch.drops.failed;
    for (const std::string& failure : batch.failures) failures += failure + "\n";
  }
  EXPECT_EQ(samples + failed, planned);
  EXPECT_GE(failed, 1);
  EXPECT_LE(failed, 2) << "both may be parts of one sample";
  EXPECT_THAT(failures, ::testing::AnyOf(HasSubstr("4.wav\" does not exist"), HasSubstr("9.wav\" is truncated")));

  Loader strict(plan, maker, {.threads = 3, .skip_bad_audio = false}, {}, 1);
  const auto consume = [&] { all_of(strict); };
  EXPECT_THAT(consume, ThrowsMessage<Error>(::testing::AnyOf(HasSubstr("4.wav"), HasSubstr("9.wav"))));
  EXPECT_THROW(strict.next(), Error) << "the error stays";
}

TEST_F(LoaderFiles, StopsWhileThreadsWorkAndWhileTheyWait) {
  const SampleMaker maker(entries, frontend, *tokenizer, options());
  const BatchPlanner plan = planner(maker);
  for (int round = 0; round < 10; ++round) {
    Loader loader(plan, maker, {.threads = 3, .prefetch = 1 + round % 3});
    for (int i = 0; i < round; ++i) ASSERT_TRUE(loader.next().has_value());
    if (round % 2 == 0) continue;  // the destructor stops
    loader.stop();
    loader.stop();
    EXPECT_THAT([&] { loader.next(); }, ThrowsMessage<Error>(HasSubstr("was stopped")));
    EXPECT_GE(loader.waited(), 0);
  }
}

TEST_F(LoaderFiles, DitherIsNewEveryEpochAndOffOutsideTraining) {
  const Frontend noisy(feature_config(0.01));
  const Sample sample{.id = 2, .parts = {{2, 1}, {5, 1.1}}};
  SampleOptions o = options();
  o.spec_augment = {0, 0, 0, 0, 0, 0};
  const SampleMaker training(entries, noisy, *tokenizer, o), clean(entries, frontend, *tokenizer, o);
  EXPECT_EQ(training(sample, 1).features, training(sample, 1).features);
  EXPECT_NE(training(sample, 1).features, training(sample, 2).features);
  EXPECT_NE(training(sample, 1).features, clean(sample, 1).features);
  o.training = false;
  EXPECT_EQ(SampleMaker(entries, noisy, *tokenizer, o)(sample, 1).features, clean(sample, 1).features);
}

TEST_F(LoaderFiles, PartsLieEndToEndAndTextsAreJoined) {
  SampleOptions o = options();
  o.training = false;
  const Frontend plain(feature_config(0, "none"));
  const SampleMaker maker(entries, plain, *tokenizer, o);
  const SampleData both = maker({.id = 3, .parts = {{3, 1}, {7, 0.9}}}, 0);
  SampleData first = maker({.id = 3, .parts = {{3, 1}}}, 0);
  const SampleData second = maker({.id = 7, .parts = {{7, 0.9}}}, 0);
  first.features.insert(first.features.end(), second.features.begin(), second.features.end());
  EXPECT_EQ(both.features, first.features);
  EXPECT_EQ(both.text, entries[3].text + " " + entries[7].text);
  EXPECT_EQ(tokenizer->decode(both.tokens), both.text);
  EXPECT_EQ(maker.utterances()[3].tokens, static_cast<std::int64_t>(entries[3].text.size()));
}

TEST_F(LoaderFiles, MeasuredStatisticsNormaliseTheCorpus) {
  const Frontend plain(feature_config(0, "none"));
  const Frontend normalised(feature_config(0, "global"), measure_statistics(entries, plain));
  SampleOptions o = options();
  o.training = false;
  const SampleMaker maker(entries, normalised, *tokenizer, o);
  double sum = 0, squares = 0, n = 0;
  for (int i = 0; i < count; ++i)
    for (const float v : maker({.id = i, .parts = {{i, 1}}}, 0).features) sum += v, squares += v * v, n += 1;
  EXPECT_NEAR(sum / n, 0, 1e-5);
  EXPECT_NEAR(squares / n, 1, 1e-5);
}

}  // namespace
}  // namespace chorus
