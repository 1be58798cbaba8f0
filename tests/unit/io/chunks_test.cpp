// Where long recordings are cut.
#include <chorus/io/chunks.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "unit/io/files_fixture.h"

namespace chorus {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Samples 0, 1, 2 ... or what `at` says, at 1,000 Hz.
class Counting : public SoundSource {
 public:
  explicit Counting(
      std::int64_t n, float (*at)(std::int64_t) = [](std::int64_t i) { return static_cast<float>(i); })
      : n_(n), at_(at) {
    sample_rate_ = 1000;
  }
  std::size_t read(std::span<float> mono) override {
    std::size_t i = 0;
    while (i < mono.size() && next_ < n_) mono[i++] = at_(next_++);
    return i;
  }

 private:
  std::int64_t n_, next_ = 0;
  float (*at_)(std::int64_t);
};

/// Lengths of the chunks, after checking that they are the recording.
std::vector<std::size_t> cuts(std::int64_t n, const ChunkOptions& options) {
  AudioStream stream(std::make_unique<Counting>(n), 1000);
  ChunkReader reader(stream, options);
  std::vector<std::size_t> lengths;
  std::int64_t at = 0;
  while (const auto chunk = reader.next()) {
    EXPECT_EQ(chunk->begin, at);
    for (const float x : chunk->samples) EXPECT_EQ(x, static_cast<float>(at++));
    lengths.push_back(chunk->samples.size());
  }
  EXPECT_EQ(at, n);
  EXPECT_EQ(reader.samples(), n);
  return lengths;
}

TEST(Chunks, ATailShorterThanTheLeastJoinsItsNeighbour) {
  const ChunkOptions options{.chunk = 100, .shortest = 30};
  EXPECT_THAT(cuts(0, options), ElementsAre());
  EXPECT_THAT(cuts(1, options), ElementsAre(1));
  EXPECT_THAT(cuts(99, options), ElementsAre(99));
  EXPECT_THAT(cuts(100, options), ElementsAre(100));
  EXPECT_THAT(cuts(129, options), ElementsAre(129));
  EXPECT_THAT(cuts(130, options), ElementsAre(100, 30));
  EXPECT_THAT(cuts(229, options), ElementsAre(100, 129));
  EXPECT_THAT(cuts(230, options), ElementsAre(100, 100, 30));
  EXPECT_THAT(cuts(300, options), ElementsAre(100, 100, 100));
  EXPECT_THAT(cuts(301, {.chunk = 100}), ElementsAre(100, 100, 100, 1));
}

TEST(Chunks, WithoutChunksARecordingIsWholeOrTooLong) {
  EXPECT_THAT(cuts(70000, {}), ElementsAre(70000));
  EXPECT_THAT(cuts(2000, {.longest = 2000}), ElementsAre(2000));
  EXPECT_THAT(error_of([] { cuts(2001, {.longest = 2000}); }),
              HasSubstr("longer than 2 s, the most that is heard as one piece"));
  EXPECT_THAT(cuts(2001, {.chunk = 1500, .longest = 2000}), ElementsAre(1500, 501));
}

TEST(Chunks, CutsGoToTheQuietestPlace) {
  // Silence from 1,700 to 1,800 ms and from 3,210 to 3,310; all else is loud.
  const auto sound = [](std::int64_t i) { return (i >= 1700 && i < 1800) || (i >= 3210 && i < 3310) ? 0.0f : 0.5f; };
  const auto lengths = [&](std::int64_t quiet) {
    AudioStream stream(std::make_unique<Counting>(6000, sound), 1000);
    ChunkReader reader(stream, {.chunk = 2000, .shortest = 100, .quiet = quiet});
    std::vector<std::size_t> out;
    while (const auto chunk = reader.next()) out.push_back(chunk->samples.size());
    return out;
  };
  EXPECT_THAT(lengths(0), ElementsAre(2000, 2000, 2000));
  // The last place in each silence that has 25 ms of it on both sides; in even sound, the end of the chunk.
  EXPECT_THAT(lengths(500), ElementsAre(1770, 1510, 2000, 720));
  EXPECT_THAT(lengths(100), ElementsAre(2000, 2000, 2000));
}

TEST(Chunks, ContradictionsAreErrors) {
  EXPECT_THAT(error_of([] { cuts(1, {.chunk = 100, .shortest = 100}); }), HasSubstr("must be longer than the shortest tail"));
  EXPECT_THAT(error_of([] { cuts(1, {.chunk = 100, .shortest = 30, .quiet = 80}); }), HasSubstr("beside the stretch"));
  EXPECT_THAT(error_of([] { cuts(1, {.chunk = -1}); }), HasSubstr("expected none below 0"));
}

}  // namespace
}  // namespace chorus
