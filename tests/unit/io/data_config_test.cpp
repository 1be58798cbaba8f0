// The keys of everything that data needs, read by the strict configuration.
#include <chorus/core/config.h>
#include <chorus/core/error.h>
#include <chorus/io/loader.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Data {
  FeatureConfig features;
  BatchConfig batches;
  SpecAugmentConfig spec_augment;
  LoaderConfig loader;
  TokenizerConfig tokenizer;

  template <class V>
  void fields(V&& v) {
    v("features", features, "log-mels"), v("batches", batches, "samples of a step"), v("loader", loader, "preparation");
    v("spec_augment", spec_augment, "masks"), v("tokenizer", tokenizer, "pieces");
  }
};

constexpr const char* small_recipe = R"([features]
sample_rate = 8000
mels = 80
fmin = 20
fmax = 4000
mel_scale = "htk"
mel_norm = "none"
dither = 0
window_periodic = true
center = false
log_guard_value = 1e-5
normalize = "global"
[batches]
batch_seconds = 10
speed_factors = [0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15]
concat_probability = 0.5
max_seconds = 40
[spec_augment]
freq_width = 15
time_mask_every = 120
time_width = 15
time_fraction = 0.2
[tokenizer]
type = "char"
)";

TEST(DataConfig, TheSmallRecipeCanBeSaid) {
  const Loaded<Data> loaded = parse_config<Data>(small_recipe, "small.toml");
  const Data& c = loaded.value;
  EXPECT_EQ(c.features.mels, 80);
  EXPECT_FALSE(c.features.center);
  EXPECT_EQ(c.batches.speed_factors, (std::vector<double>{0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15}));
  EXPECT_EQ(c.spec_augment.time_mask_every, 120);
  EXPECT_EQ(c.tokenizer.type, "char");
  EXPECT_EQ(c.loader.prefetch, 4) << "a default";
  const Frontend frontend(c.features, {std::vector<double>(80, 0.0), std::vector<double>(80, 1.0)});
  EXPECT_EQ(frontend.frames(8000), 98);

  const std::string resolved = resolved_toml(loaded);
  EXPECT_EQ(parse_config<Data>(resolved, "again.toml").value.batches.speed_factors, c.batches.speed_factors);
  EXPECT_EQ(parse_config<Data>(resolved, "again.toml").value.features.log_guard_value, 1e-5);
}

TEST(DataConfig, ValuesOutOfRangeAndUnknownKeysAreNamed) {
  const auto parse = [](const char* text) { return parse_config<Data>(text, "bad.toml"); };
  EXPECT_THAT([&] { parse("[features]\nmel_scale = \"bark\""); },
              ThrowsMessage<Error>(::testing::AllOf(HasSubstr("bad.toml:2"), HasSubstr("htk"))));
  EXPECT_THAT([&] { parse("[batches]\nconcat_probability = 1.5"); }, ThrowsMessage<Error>(HasSubstr("from 0 to 1")));
  EXPECT_THAT([&] { parse("[batches]\nspeed_factors = []"); }, ThrowsMessage<Error>(HasSubstr("not empty")));
  EXPECT_THAT([&] { parse("[spec_augment]\ntime_mask = 3"); }, ThrowsMessage<Error>(HasSubstr("time_masks")));
  EXPECT_THAT([&] { parse("[loader]\nthreads = 0"); }, ThrowsMessage<Error>(HasSubstr("from 1 to 256")));
}

}  // namespace
}  // namespace chorus
