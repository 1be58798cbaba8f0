#include <chorus/core/error.h>
#include <chorus/core/rng.h>
#include <chorus/io/features.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace chorus {
namespace {

using Lanes = PowerSpectrum::Lanes;

int samples_of(double seconds, int rate) { return static_cast<int>(std::llround(seconds * rate)); }
double top_frequency(const FeatureConfig& c) { return c.fmax > 0 ? c.fmax : c.sample_rate / 2.0; }

// Slaney's scale (Auditory Toolbox): 3 mels per 200 Hz up to 1 kHz, then 27 mels per factor 6.4. HTK: O'Shaughnessy's formula.
double to_mel(double hz, bool htk) {
  if (htk) return 2595 * std::log10(1 + hz / 700);
  return hz < 1000 ? hz * 3 / 200 : 15 + 27 * std::log(hz / 1000) / std::log(6.4);
}
double to_hz(double mel, bool htk) {
  if (htk) return 700 * (std::pow(10, mel / 2595) - 1);
  return mel < 15 ? mel * 200 / 3 : 1000 * std::exp((mel - 15) * std::log(6.4) / 27);
}

/// Filter m rises from edge m to edge m + 1 and falls to edge m + 2; in Hz.
std::vector<double> mel_edges(const FeatureConfig& c) {
  const bool htk = c.mel_scale == "htk";
  const double low = to_mel(c.fmin, htk), high = to_mel(top_frequency(c), htk);
  std::vector<double> edges(c.mels + 2);
  for (int i = 0; i < c.mels + 2; ++i) edges[i] = to_hz(low + (high - low) * i / (c.mels + 1), htk);
  return edges;
}

const FeatureConfig& checked(const FeatureConfig& c, const FeatureStatistics& statistics) {
  std::string wrong;
  auto check = [&](bool ok, const std::string& message) {
    if (!ok) wrong.append("\n  ").append(message);
  };
  auto one_of = [&](const char* key, const std::string& value, std::initializer_list<const char*> allowed) {
    std::string list;
    for (const char* a : allowed) list.append(list.empty() ? "" : " | ").append(a);
    check(std::find(allowed.begin(), allowed.end(), value) != allowed.end(),
          std::string(key) + " '" + value + "' is not " + list);
  };
  check(c.sample_rate > 0, "sample_rate " + std::to_string(c.sample_rate) + " must be positive");
  check(c.mels >= 1, "mels " + std::to_string(c.mels) + " must be positive");
  check(c.n_fft >= 4 && (c.n_fft & (c.n_fft - 1)) == 0, "n_fft " + std::to_string(c.n_fft) + " must be a power of two");
  check(c.fmin >= 0 && c.fmax >= 0,
        "fmin " + std::to_string(c.fmin) + " and fmax " + std::to_string(c.fmax) + " must not be negative");
  const bool related = c.sample_rate > 0 && c.mels >= 1 && c.n_fft >= 4 && c.fmin >= 0 && c.fmax >= 0;
  if (related)  // else how they relate means nothing
    c.rules([&](bool ok, const char* key, const auto&... message) {
      check(ok, std::string(key) + ": " + config::joined(message...));
    });
  check(c.mag_power > 0, "mag_power " + std::to_string(c.mag_power) + " must be positive");
  check(c.log_guard_value > 0, "log_guard_value " + std::to_string(c.log_guard_value) + " must be positive");
  check(c.dither >= 0, "dither " + std::to_string(c.dither) + " must not be negative");
  one_of("mel_scale", c.mel_scale, {"slaney", "htk"});
  one_of("mel_norm", c.mel_norm, {"slaney", "none"});
  one_of("log_guard", c.log_guard, {"add", "clamp"});
  one_of("normalize", c.normalize, {"per_feature", "global", "none"});
  const auto mels = static_cast<std::size_t>(std::max(c.mels, 0));
  check(c.normalize != "global" || (statistics.mean.size() == mels && statistics.deviation.size() == mels),
        "normalize global needs the statistics of " + std::to_string(mels) + " mels, has " +
            std::to_string(statistics.mean.size()) + " means and " + std::to_string(statistics.deviation.size()) +
            " deviations");
  for (std::size_t m = 0; m < statistics.deviation.size(); ++m)
    check(statistics.deviation[m] > 0,
          "the deviation of mel " + std::to_string(m) + " is " + std::to_string(statistics.deviation[m]));
  require(wrong.empty(), "Frontend", "cannot honour:", wrong);
  return c;
}

}  // namespace

int FeatureConfig::empty_filters() const {
  const std::vector<double> edges = mel_edges(*this);
  const double bin = static_cast<double>(sample_rate) / n_fft;
  int empty = 0;
  for (int m = 0; m < mels; ++m) empty += (std::floor(edges[m] / bin) + 1) * bin >= edges[m + 2];
  return empty;
}

std::vector<double> mel_filters(const FeatureConfig& c) {
  const int bins = c.n_fft / 2 + 1;
  const std::vector<double> edges = mel_edges(c);
  std::vector<double> filters(static_cast<std::size_t>(c.mels) * bins);
  for (int m = 0; m < c.mels; ++m) {
    const double left = edges[m], centre = edges[m + 1], right = edges[m + 2];
    const double scale = c.mel_norm == "slaney" ? 2 / (right - left) : 1;
    for (int k = 0; k < bins; ++k) {
      const double f = static_cast<double>(k) * c.sample_rate / c.n_fft;
      filters[static_cast<std::size_t>(m) * bins + k] =
          scale * std::max(0.0, std::min((f - left) / (centre - left), (right - f) / (right - centre)));
    }
  }
  return filters;
}

Frontend::Frontend(const FeatureConfig& config, FeatureStatistics statistics)
    : config_(checked(config, statistics)),
      statistics_(std::move(statistics)),
      window_size_(samples_of(config.window_seconds, config.sample_rate)),
      hop_(samples_of(config.hop_seconds, config.sample_rate)),
      spectrum_(config.n_fft) {
  const int intervals = config.window_periodic ? window_size_ : window_size_ - 1;
  for (int i = 0; i < window_size_; ++i) window_.push_back(0.5 - 0.5 * std::cos(2 * std::numbers::pi * i / intervals));
  const std::vector<double> dense = mel_filters(config_);
  const int bins = spectrum_.bins();
  for (int m = 0; m < config.mels; ++m) {
    const double* row = dense.data() + static_cast<std::size_t>(m) * bins;
    int first = 0, end = bins;
    while (first < end && row[first] == 0) ++first;
    while (end > first && row[end - 1] == 0) --end;
    filters_.push_back({first, std::vector<double>(row + first, row + end)});
  }
}

std::int64_t Frontend::frames(std::int64_t samples) const {
  if (samples <= 0) return 0;
  if (config_.center) return samples / hop_;
  return samples <= window_size_ ? 1 : 1 + (samples - window_size_) / hop_;
}

template <class T>
std::vector<T> Frontend::log_mel(std::span<const T> samples) const {
  const auto n = static_cast<std::int64_t>(samples.size());
  const std::int64_t count = frames(n);
  const int mels = config_.mels, bins = spectrum_.bins();
  const bool add = config_.log_guard == "add";
  // Zeros around the signal let every window, also of a lane beyond the last frame, read without checks.
  const std::int64_t before = config_.center ? config_.n_fft / 2 - (config_.n_fft - window_size_) / 2 : 0;
  const std::int64_t rounded = (count + PowerSpectrum::lanes - 1) / PowerSpectrum::lanes * PowerSpectrum::lanes;
  std::vector<double> signal(static_cast<std::size_t>(before + std::max(n, rounded * hop_) + window_size_));
  const double p = config_.preemphasis;
  for (std::int64_t i = 0; i < n; ++i)
    signal[before + i] = i == 0 ? double{samples[0]} : double{samples[i]} - p * double{samples[i - 1]};

  std::vector<T> out(static_cast<std::size_t>(count * mels));
  std::vector<Lanes> buffer(config_.n_fft), power(bins);
  for (std::int64_t t = 0; t < count; t += PowerSpectrum::lanes) {
    for (int i = 0; i < window_size_; ++i)
      for (int lane = 0; lane < PowerSpectrum::lanes; ++lane)
        buffer[i][lane] = signal[(t + lane) * hop_ + i] * window_[i];  // the place inside n_fft moves phases only
    std::fill(buffer.begin() + window_size_, buffer.end(), Lanes::Zero());
    spectrum_(buffer, power);
    if (config_.mag_power != 2)
      for (Lanes& bin : power)
        for (double& value : bin) value = std::pow(value, config_.mag_power / 2);
    const int lanes = static_cast<int>(std::min<std::int64_t>(PowerSpectrum::lanes, count - t));
    for (int m = 0; m < mels; ++m) {
      Lanes sum = Lanes::Zero();
      const Filter& filter = filters_[m];
      for (std::size_t k = 0; k < filter.weights.size(); ++k) sum += power[filter.first + k] * filter.weights[k];
      for (int lane = 0; lane < lanes; ++lane) {
        const double guarded = add ? sum[lane] + config_.log_guard_value : std::max(sum[lane], config_.log_guard_value);
        out[(t + lane) * mels + m] = static_cast<T>(std::log(guarded));
      }
    }
  }
  return out;
}

template <class T>
void Frontend::normalize(std::span<T> features) const {
  const auto mels = static_cast<std::size_t>(config_.mels);
  require(features.size() % mels == 0, "Frontend::normalize", features.size(), " values are no rows of ", mels, " mels");
  const std::size_t frames = features.size() / mels;
  if (config_.normalize == "none" || frames == 0) return;
  std::vector<double> mean = statistics_.mean, scale = statistics_.deviation;
  if (config_.normalize == "per_feature") {
    require(frames > 1, "Frontend::normalize", "one frame has no deviation: per_feature needs at least two valid frames");
    mean.assign(mels, 0);
    scale.assign(mels, 0);
    for (std::size_t t = 0; t < frames; ++t)
      for (std::size_t m = 0; m < mels; ++m) mean[m] += features[t * mels + m];
    for (double& m : mean) m /= static_cast<double>(frames);
    for (std::size_t t = 0; t < frames; ++t)
      for (std::size_t m = 0; m < mels; ++m)
        scale[m] += (features[t * mels + m] - mean[m]) * (features[t * mels + m] - mean[m]);
    for (double& s : scale) s = std::sqrt(s / static_cast<double>(frames - 1)) + 1e-5;
  }
  for (std::size_t t = 0; t < frames; ++t)
    for (std::size_t m = 0; m < mels; ++m)
      features[t * mels + m] = static_cast<T>((features[t * mels + m] - mean[m]) / scale[m]);
}

template <class T>
std::vector<T> Frontend::operator()(std::span<const T> samples) const {
  std::vector<double> exact = log_mel<double>(std::vector<double>(samples.begin(), samples.end()));
  normalize<double>(exact);
  return {exact.begin(), exact.end()};
}

template std::vector<float> Frontend::log_mel(std::span<const float>) const;
template std::vector<double> Frontend::log_mel(std::span<const double>) const;
template void Frontend::normalize(std::span<float>) const;
template void Frontend::normalize(std::span<double>) const;
template std::vector<float> Frontend::operator()(std::span<const float>) const;
template std::vector<double> Frontend::operator()(std::span<const double>) const;

void add_dither(std::span<float> samples, double deviation, std::uint64_t seed, std::uint64_t epoch, std::int64_t sample) {
  if (deviation == 0) return;
  std::vector<float> noise(samples.size());
  // Every sample owns 2^32 numbers of the stream: 74 hours at 16 kHz.
  fill_normal(random_key(seed, epoch, "dither"), static_cast<std::uint64_t>(sample) << 32, std::span<float>(noise), 0,
              deviation);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] += noise[i];
}

void StatisticsSum::add(std::span<const float> features) {
  const std::size_t mels = sum_.size();
  for (std::size_t t = 0; t < features.size() / mels; ++t)
    for (std::size_t m = 0; m < mels; ++m) {
      const double x = features[t * mels + m];
      sum_[m] += x;
      squares_[m] += x * x;
    }
  count_ += static_cast<std::int64_t>(features.size() / mels);
}

FeatureStatistics StatisticsSum::result() const {
  require(count_ > 0, "StatisticsSum", "no frame was added");
  FeatureStatistics r;
  for (std::size_t m = 0; m < sum_.size(); ++m) {
    const double n = static_cast<double>(count_), mean = sum_[m] / n;
    r.mean.push_back(mean);
    r.deviation.push_back(std::sqrt(std::max(0.0, squares_[m] / n - mean * mean)));
  }
  return r;
}

}  // namespace chorus
