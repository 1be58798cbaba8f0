// The front ends against values that an independent NumPy program computed by the definition of the transform.
#include <chorus/io/features.h>
#include <golden/golden_file.h>
#include <gtest/gtest.h>

#include <cmath>
#include <iomanip>

namespace chorus {
namespace {

void expect_equal(const std::string& what, const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size()) << what;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= std::abs(got[worst] - want[worst]))) worst = i;
  EXPECT_LE(std::abs(got[worst] - want[worst]), tolerance)
      << std::setprecision(17) << what << ": element " << worst << " is " << got[worst] << ", expected " << want[worst]
      << ", ratio " << got[worst] / want[worst];
}

std::vector<double> log_mel(const Frontend& frontend, const testing::GoldenFile& file, const std::string& name) {
  const auto samples = file.values("frontend/" + name + "/waveform");
  return frontend.log_mel(std::span<const double>(samples));
}

TEST(GoldenFrontend, Nemo) {
  const testing::GoldenFile file;
  const Frontend frontend{FeatureConfig{}};
  for (const std::string name : {"nemo_0", "nemo_1"}) {
    auto features = log_mel(frontend, file, name);
    expect_equal(name + " log_mel", features, file.values("frontend/" + name + "/log_mel"), 1e-10);
    frontend.normalize(std::span(features));
    expect_equal(name + " normalised", features, file.values("frontend/" + name + "/normalised"), 1e-10);
  }
}

TEST(GoldenFrontend, Small) {
  const testing::GoldenFile file;
  FeatureConfig config;
  config.sample_rate = 8000;
  config.mels = 80;
  config.fmin = 20;
  config.fmax = 4000;
  config.mel_scale = "htk";
  config.mel_norm = "none";
  config.window_periodic = true;
  config.center = false;
  config.log_guard_value = 1e-5;
  config.normalize = "none";
  expect_equal("small log_mel", log_mel(Frontend(config), file, "small"), file.values("frontend/small/log_mel"), 1e-10);
}

}  // namespace
}  // namespace chorus
