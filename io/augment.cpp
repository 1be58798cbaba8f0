#include <chorus/core/error.h>
#include <chorus/core/rng.h>
#include <chorus/io/augment.h>

#include <algorithm>

namespace chorus {
namespace {

struct Band {
  std::int64_t begin, end;
};

Band draw(RandomStream& random, std::int64_t size, std::int64_t widest) {
  const auto width = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(std::min(widest, size)) + 1));
  const auto begin = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size - width) + 1));
  return {begin, begin + width};
}

}  // namespace

void spec_augment(std::span<float> features, int mels, const SpecAugmentConfig& config, std::uint64_t seed, std::uint64_t epoch,
                  std::int64_t sample, float value) {
  require(mels > 0 && features.size() % static_cast<std::size_t>(mels) == 0, "spec_augment", features.size(),
          " values are no rows of ", mels, " mels");
  const auto frames = static_cast<std::int64_t>(features.size()) / mels;
  RandomStream random(random_key(seed, epoch, "spec_augment"), static_cast<std::uint64_t>(sample));
  for (int i = 0; i < config.freq_masks; ++i) {
    const Band band = draw(random, mels, config.freq_width);
    for (std::int64_t t = 0; t < frames; ++t)
      std::fill(features.begin() + t * mels + band.begin, features.begin() + t * mels + band.end, value);
  }
  const std::int64_t widest =
      std::min<std::int64_t>(config.time_width, static_cast<std::int64_t>(static_cast<double>(frames) * config.time_fraction));
  const std::int64_t masks =
      config.time_mask_every > 0 ? std::max<std::int64_t>(1, frames / config.time_mask_every) : config.time_masks;
  for (std::int64_t i = 0; i < masks; ++i) {
    const Band band = draw(random, frames, widest);
    std::fill(features.begin() + band.begin * mels, features.begin() + band.end * mels, value);
  }
}

}  // namespace chorus
