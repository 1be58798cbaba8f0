#include <chorus/core/error.h>
#include <chorus/core/rng.h>
#include <chorus/io/features.h>
#include <chorus/io/fft.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>

namespace chorus {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<double> noise_f64(std::size_t n, std::uint64_t seed) {
  std::vector<double> x(n);
  RandomStream random(random_key(seed, "features_test"));
  for (double& v : x) v = 0.3 * random.normal();
  return x;
}

/// The definition, step by step and with a direct DFT: zeros around the whole signal, a window centred inside n_fft.
std::vector<double> naive_log_mel(const FeatureConfig& c, std::vector<double> x, const std::vector<double>& filters) {
  for (std::size_t i = x.size(); i-- > 1;) x[i] -= c.preemphasis * x[i - 1];
  const int window = static_cast<int>(std::lround(c.window_seconds * c.sample_rate));
  const int hop = static_cast<int>(std::lround(c.hop_seconds * c.sample_rate));
  std::vector<double> hann(c.n_fft, 0.0);
  const int left = c.center ? (c.n_fft - window) / 2 : 0;
  for (int i = 0; i < window; ++i)
    hann[left + i] = 0.5 * (1 - std::cos(2 * std::numbers::pi * i / (c.window_periodic ? window : window - 1)));
  std::size_t frames = 0;
  if (c.center) {
    frames = x.size() / hop;
    x.insert(x.begin(), c.n_fft / 2, 0.0);
  } else {
    x.resize(std::max<std::size_t>(x.size(), window));
    frames = 1 + (x.size() - window) / hop;
  }
  x.resize(x.size() + 2 * c.n_fft, 0.0);
  std::vector<double> out;
  for (std::size_t t = 0; t < frames; ++t) {
    std::vector<double> power;
    for (int k = 0; k <= c.n_fft / 2; ++k) {
      std::complex<double> sum = 0;
      for (int i = 0; i < c.n_fft; ++i)
        sum += hann[i] * x[t * hop + i] *
               std::polar(1.0, -2 * std::numbers::pi * ((static_cast<long>(k) * i) % c.n_fft) / c.n_fft);
      power.push_back(std::pow(std::abs(sum), c.mag_power));
    }
    for (int m = 0; m < c.mels; ++m) {
      double mel = 0;
      for (std::size_t k = 0; k < power.size(); ++k) mel += filters[m * power.size() + k] * power[k];
      out.push_back(std::log(c.log_guard == "add" ? mel + c.log_guard_value : std::max(mel, c.log_guard_value)));
    }
  }
  return out;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    if (const double error = std::abs(got[i] - want[i]) / (1 + std::abs(want[i])); !(error <= worst)) worst = error, at = i;
  if (got.empty()) return;
  EXPECT_LE(worst, tolerance) << "worst at " << at << ": got " << got[at] << ", want " << want[at] << ", ratio "
                              << got[at] / want[at];
}

FeatureConfig demo() {
  FeatureConfig c;
  c.sample_rate = 8000;
  c.mels = 80;
  c.fmin = 20;
  c.fmax = 4000;
  c.mel_scale = "htk";
  c.mel_norm = "none";
  c.dither = 0;
  c.window_periodic = true;
  c.center = false;
  c.log_guard_value = 1e-5;
  c.normalize = "none";
  return c;
}

/// `tolerance` is of the signal's norm, which is what rounding in a transform is relative to.
template <class T>
void check_spectrum(double tolerance) {
  using Lanes = typename PowerSpectrum<T>::Lanes;
  constexpr int lanes = PowerSpectrum<T>::lanes;
  for (const int n : {4, 8, 16, 32, 256, 512}) {
    const PowerSpectrum<T> spectrum(n);
    std::vector<Lanes> x(n), power(spectrum.bins());
    const std::vector<double> values = noise_f64(lanes * n, n);
    for (int i = 0; i < n; ++i)
      for (int lane = 0; lane < lanes; ++lane) x[spectrum.place(i)][lane] = static_cast<T>(values[i * lanes + lane]);
    spectrum(x, power);
    for (int lane = 0; lane < lanes; ++lane) {
      double norm = 0;
      for (int i = 0; i < n; ++i) norm += values[i * lanes + lane] * values[i * lanes + lane];
      for (int k = 0; k <= n / 2; ++k) {
        std::complex<double> sum = 0;
        for (int i = 0; i < n; ++i)
          sum += values[i * lanes + lane] * std::polar(1.0, -2 * std::numbers::pi * ((static_cast<long>(k) * i) % n) / n);
        ASSERT_NEAR(std::sqrt(static_cast<double>(power[k][lane])), std::abs(sum), tolerance * std::sqrt(norm))
            << "n " << n << " bin " << k << " lane " << lane;
      }
    }
  }
}

TEST(PowerSpectrum, EqualsTheDirectTransformInEveryLane) {
  check_spectrum<double>(1e-14);
  check_spectrum<float>(1e-6);
  EXPECT_THAT([] { PowerSpectrum<float>(400); }, ThrowsMessage<Error>(HasSubstr("size 400 must be a power of two")));
}

TEST(Features, EqualTheDefinition) {
  std::vector<FeatureConfig> configs(4);
  configs[0].normalize = "none";
  configs[1] = demo();
  configs[2] = demo();
  configs[2].center = true;
  configs[2].window_seconds = 0.025125;  // an odd window, 201 samples
  configs[2].log_guard = "clamp";
  configs[3] = demo();
  configs[3].mag_power = 1;
  configs[3].mel_norm = "slaney";
  for (std::size_t c = 0; c < configs.size(); ++c) {
    const Frontend frontend(configs[c]);
    const std::vector<double> filters = mel_filters(configs[c]);
    for (const int n : {0, 1, 79, 80, 160, 200, 201, 1403, 2880}) {
      const std::vector<double> x = noise_f64(n, n);
      const std::vector<double> got = frontend.log_mel<double>(x);
      ASSERT_EQ(static_cast<std::int64_t>(got.size()), frontend.frames(n) * configs[c].mels) << "config " << c << " n " << n;
      if (n > 0) expect_close(got, naive_log_mel(configs[c], x, filters), 1e-11);
    }
  }
}

TEST(Features, FrameCounts) {
  const Frontend nemo{FeatureConfig{}};
  EXPECT_EQ(nemo.frames(159), 0);
  EXPECT_EQ(nemo.frames(160), 1);
  EXPECT_EQ(nemo.frames(16000), 100) << "the STFT's 101st frame is not valid";
  const Frontend small(demo());
  EXPECT_EQ(small.frames(0), 0);
  EXPECT_EQ(small.frames(1), 1);
  EXPECT_EQ(small.frames(279), 1);
  EXPECT_EQ(small.frames(280), 2);
}

/// Two tones 90 dB apart over noise of the last bit of 16: what float can do least about.
std::vector<double> tones(std::size_t n, int rate) {
  std::vector<double> x = noise_f64(n, 1);
  for (std::size_t i = 0; i < n; ++i) {
    const double t = 2 * std::numbers::pi * static_cast<double>(i) / rate;
    x[i] = 0.9 * std::sin(440 * t) + 3e-5 * std::sin(2750 * t) + 3e-5 * x[i];
  }
  return x;
}

// Rounding leaves an error d in the spectrum X of a frame x that is relative to all of x: a transform of n points rounds every
// value log2 n times, so |d| <= u log2(n) |x| for each bin, u = 2^-24. A mel E = sum w |X|^2 is then wrong by at most
// sum w (2 |X| |d| + |d|^2) <= 2 |d| sqrt(W E) + W |d|^2 with W = sum w (Cauchy and Schwarz), which log(E + guard) divides by
// E + guard. Windows, weights, squares and the sum add 16 u at most, and log rounds its own value.
TEST(Features, FloatIsAsNearToDoubleAsRoundingAllows) {
  for (FeatureConfig c : {FeatureConfig{}, demo()}) {
    c.normalize = "none";
    const Frontend frontend(c);
    const std::vector<double> filters = mel_filters(c);
    const int window = static_cast<int>(std::lround(c.window_seconds * c.sample_rate));
    const int hop = static_cast<int>(std::lround(c.hop_seconds * c.sample_rate)), before = c.center ? window / 2 : 0;
    const std::size_t bins = c.n_fft / 2 + 1;
    std::vector<double> weights, hann;
    for (int m = 0; m < c.mels; ++m)
      weights.push_back(std::accumulate(filters.begin() + m * bins, filters.begin() + (m + 1) * bins, 0.0));
    for (int k = 0; k < window; ++k)
      hann.push_back(0.5 - 0.5 * std::cos(2 * std::numbers::pi * k / (c.window_periodic ? window : window - 1)));
    constexpr double u = 0x1p-24;
    double worst = 0;
    for (std::vector<double> x : {noise_f64(9000, 3), tones(9000, c.sample_rate), std::vector<double>(2000)}) {
      const std::vector<float> rounded(x.begin(), x.end());
      x.assign(rounded.begin(), rounded.end());
      const std::vector<double> want = frontend.log_mel<double>(x);
      const std::vector<float> got = frontend.log_mel<float>(rounded);
      ASSERT_EQ(got.size(), want.size());
      const auto sample = [&](std::int64_t j) { return j < 0 || j >= std::ssize(x) ? 0.0 : x[j]; };
      for (std::int64_t t = 0; t < std::ssize(got) / c.mels; ++t) {
        double norm = 0;
        for (int k = 0; k < window; ++k) {
          const std::int64_t at = t * hop - before + k;
          norm += std::pow(hann[k] * (sample(at) - c.preemphasis * sample(at - 1)), 2);
        }
        const double d = u * std::log2(c.n_fft) * std::sqrt(norm);
        for (int m = 0; m < c.mels; ++m) {
          const double exact = want[t * c.mels + m], guarded = std::exp(exact), error = std::abs(got[t * c.mels + m] - exact);
          const double energy = std::max(0.0, guarded - c.log_guard_value);
          const double relative = (2 * d * std::sqrt(weights[m] * energy) + weights[m] * d * d) / guarded + 16 * u;
          const double bound = -std::log1p(-std::min(relative, 0.5)) + 2 * u * std::abs(exact);
          worst = std::max(worst, error / bound);
          ASSERT_LE(error, bound) << "frame " << t << " mel " << m << ": " << got[t * c.mels + m] << " and " << exact;
        }
      }
    }
    EXPECT_GT(worst, 0.1) << "the bound says little";
  }
}

TEST(Features, AFrameDependsOnItsSamplesOnly) {
  const Frontend frontend(demo());
  const std::vector<double> x = noise_f64(8000, 4);
  const std::vector<float> all(x.begin(), x.end());
  const std::vector<float> whole = frontend.log_mel<float>(all);
  for (const int later : {1, 3, 17}) {  // other lanes, other neighbours
    const std::span<const float> rest = std::span<const float>(all).subspan(80 * later);
    std::vector<float> part{7};
    frontend.append_log_mel(rest, part);
    ASSERT_EQ(part.size() - 1, whole.size() - 80 * later);
    EXPECT_EQ(part[0], 7);
    for (std::size_t i = 80; i + 1 < part.size(); ++i)  // the first frame has another first sample
      ASSERT_EQ(part[1 + i], whole[80 * later + i])
          << "frame " << i / 80 << " of those from " << later << " on, mel " << i % 80;
  }
}

TEST(Features, MelFiltersOfBothScales) {
  FeatureConfig c = demo();
  std::vector<double> f = mel_filters(c);
  const int bins = 257;
  for (int m = 0; m < c.mels; ++m) {
    double sum = 0, top = 0;
    for (int k = 0; k < bins; ++k) sum += f[m * bins + k], top = std::max(top, f[m * bins + k]);
    EXPECT_GT(sum, 0) << "filter " << m << " is empty";
    EXPECT_LE(top, 1);
  }
  c = FeatureConfig{};
  c.sample_rate = 16000;
  c.n_fft = 32768;  // fine bins: sums approximate areas
  f = mel_filters(c);
  for (int m = 0; m < c.mels; ++m) {
    double area = 0;
    for (int k = 0; k <= c.n_fft / 2; ++k) area += f[static_cast<std::size_t>(m) * (c.n_fft / 2 + 1) + k] * 16000 / 32768;
    EXPECT_NEAR(area, 1, 1e-3) << "filter " << m;
  }
}

TEST(Features, PerFeatureNormalisationHasMeanZeroAndUnbiasedDeviation) {
  FeatureConfig c;
  c.mels = 20;
  const Frontend frontend(c);
  const std::vector<double> y = frontend.operator()<double>(noise_f64(8000, 5)),
                            raw = frontend.log_mel<double>(noise_f64(8000, 5));
  for (int m = 0; m < c.mels; ++m) {
    double mean = 0, raw_mean = 0, square = 0;
    for (int t = 0; t < 50; ++t) mean += y[t * 20 + m] / 50, raw_mean += raw[t * 20 + m] / 50;
    for (int t = 0; t < 50; ++t) square += std::pow(raw[t * 20 + m] - raw_mean, 2) / 49;
    EXPECT_NEAR(mean, 0, 1e-10);
    EXPECT_NEAR(y[m] * (std::sqrt(square) + 1e-5), raw[m] - raw_mean, 1e-10);
  }
  EXPECT_THAT([&] { frontend.operator()<double>(noise_f64(160, 1)); },
              ThrowsMessage<Error>(HasSubstr("at least two valid frames")));
  EXPECT_TRUE(frontend.operator()<double>(noise_f64(159, 1)).empty());
}

TEST(Features, GlobalNormalisationByMeasuredStatistics) {
  FeatureConfig c = demo();
  const Frontend raw(c);
  StatisticsSum sum(c.mels);
  std::vector<std::vector<float>> all;
  for (const int n : {900, 4000, 2500}) {
    const std::vector<double> x = noise_f64(n, n);
    all.push_back(raw.log_mel<float>(std::vector<float>(x.begin(), x.end())));
    sum.add(all.back());
  }
  c.normalize = "global";
  const Frontend frontend(c, sum.result());
  std::vector<double> mean(c.mels), square(c.mels);
  double frames = 0;
  for (std::vector<float>& features : all) {
    frontend.normalize<float>(features);
    for (std::size_t i = 0; i < features.size(); ++i)
      mean[i % c.mels] += features[i], square[i % c.mels] += features[i] * features[i];
    frames += static_cast<double>(features.size()) / c.mels;
  }
  for (int m = 0; m < c.mels; ++m) {
    EXPECT_NEAR(mean[m] / frames, 0, 1e-5);
    EXPECT_NEAR(square[m] / frames, 1, 1e-5);
  }
  EXPECT_THAT([&] { Frontend f(c); },
              ThrowsMessage<Error>(HasSubstr("normalize global needs the statistics of 80 mels, has 0 means")));
}

TEST(Features, EveryBadKeyIsNamedAtOnce) {
  FeatureConfig c;
  c.n_fft = 400;
  c.mel_scale = "bark";
  c.fmax = 9000;
  c.log_guard_value = 0;
  c.mag_power = 4;
  EXPECT_THAT([&] { Frontend f(c); },
              ThrowsMessage<Error>(::testing::AllOf(
                  HasSubstr("n_fft 400 must be a power of two"), HasSubstr("mel_scale 'bark' is not slaney | htk"),
                  HasSubstr("fmax: 9000 Hz is above 8000 Hz"), HasSubstr("log_guard_value 0"), HasSubstr("mag_power 4"))));
}

TEST(Features, DitherDependsOnItsKeysOnly) {
  auto dithered = [](std::size_t n, std::uint64_t seed, std::uint64_t epoch, std::int64_t id) {
    std::vector<float> x(n);
    add_dither(x, 0.5, seed, epoch, id);
    return x;
  };
  const std::vector<float> x = dithered(1000, 1, 2, 3), shorter = dithered(400, 1, 2, 3);
  EXPECT_TRUE(std::equal(shorter.begin(), shorter.end(), x.begin()));
  EXPECT_NE(x, dithered(1000, 2, 2, 3));
  EXPECT_NE(x, dithered(1000, 1, 3, 3));
  EXPECT_NE(x, dithered(1000, 1, 2, 4));
  double square = 0;
  for (const float v : x) square += v * v / 1000;
  EXPECT_NEAR(std::sqrt(square), 0.5, 0.05);
}

TEST(Features, DitherIsNormalNoiseOfTheRandomStream) {
  constexpr std::size_t n = 100'003;
  std::vector<float> got(n), want(n);
  add_dither(got, 2, 5, 6, 7);
  fill_normal(random_key(5, 6, "dither"), std::uint64_t{7} << 32, std::span<float>(want), 0, 2);
  // Computed in float: relative to the deviation, but for radii near 0, whose error is the root of a rounding.
  std::size_t far = 0;
  for (std::size_t i = 0; i < n; ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-3) << "number " << i;
    far += std::abs(got[i] - want[i]) > 4e-6;
  }
  EXPECT_LE(far, n / 500);
}

}  // namespace
}  // namespace chorus
