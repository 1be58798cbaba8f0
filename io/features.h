// Log-mel features of speech: what the encoder sees.
#pragma once
#include <chorus/core/config/check.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace chorus {

/// The defaults are the front end of NeMo's FastConformer models.
struct FeatureConfig {
  int sample_rate = 16000;
  double window_seconds = 0.025, hop_seconds = 0.01;
  int n_fft = 512, mels = 128;
  double fmin = 0, fmax = 0;
  std::string mel_scale = "slaney", mel_norm = "slaney";
  double preemphasis = 0.97, dither = 1e-5;
  bool window_periodic = false, center = true;
  double mag_power = 2;
  std::string log_guard = "add";
  double log_guard_value = 0x1p-24;
  std::string normalize = "per_feature";

  template <class V>
  void fields(V&& v) {
    v("sample_rate", sample_rate, "Hz; sound files are resampled to it", between(1000, 768'000));
    v("window_seconds", window_seconds, "length of the Hann window", greater_than(0.0), at_most(10.0));
    v("hop_seconds", hop_seconds, "one frame per hop", greater_than(0.0), at_most(10.0));
    v("n_fft", n_fft, "at least the window, which sits in its middle",
      satisfies([](int n) { return n >= 4 && n <= 65536 && (n & (n - 1)) == 0; }, "a power of two from 4 to 65536"));
    v("mels", mels, "mel filters", between(1, 1024));
    v("fmin", fmin, "Hz, lower edge of the first filter", at_least(0.0));
    v("fmax", fmax, "Hz, upper edge of the last filter; 0: half the sample rate", at_least(0.0));
    v("mel_scale", mel_scale, "slaney: linear to 1 kHz, then logarithmic", one_of("slaney", "htk"));
    v("mel_norm", mel_norm, "slaney: every filter has area 1; none: it peaks at 1", one_of("slaney", "none"));
    v("preemphasis", preemphasis, "p of y[t] = x[t] - p x[t-1], the first sample kept", between(0.0, 1.0));
    v("dither", dither, "deviation of the noise added to samples, in training only", at_least(0.0));
    v("window_periodic", window_periodic, "Hann over window (true) or window - 1 (false) intervals");
    v("center", center,
      "true: frame t is centred at t x hop, zeros around the signal, floor(n / hop) frames; false: it starts there and lies "
      "within, 1 + floor((n - window) / hop) frames, zeros up to one window");
    v("mag_power", mag_power, "1: magnitude, 2: power", greater_than(0.0), at_most(3.0));
    v("log_guard", log_guard, "add: log(x + value); clamp: log(max(x, value))", one_of("add", "clamp"));
    v("log_guard_value", log_guard_value, "its value", at_least(1e-37));
    v("normalize", normalize, "by each sample's own statistics, the training set's, or not",
      one_of("per_feature", "global", "none"));
  }
  template <class Check>
  void rules(Check&& check) const {
    const double window = window_seconds * sample_rate, half = sample_rate / 2.0, top = fmax > 0 ? fmax : half;
    check(window >= 1.5, "window_seconds", window_seconds, " s are under two samples at sample_rate = ", sample_rate);
    check(window < n_fft + 0.5, "n_fft", n_fft, " is less than the window: window_seconds = ", window_seconds,
          " at sample_rate = ", sample_rate, " are ", window, " samples");
    check(hop_seconds * sample_rate >= 0.5, "hop_seconds", hop_seconds,
          " s are under one sample at sample_rate = ", sample_rate);
    check(top <= half, "fmax", fmax, " Hz is above ", half, " Hz, half the sample_rate");
    check(fmin<top, "fmin", fmin, " Hz is not below ", top, " Hz, ", fmax> 0 ? "fmax" : "half the sample_rate");
    const int empty = top <= half && fmin < top ? empty_filters() : 0;
    check(empty == 0, "mels", empty, " of ", mels, " filters lie between two bins of the spectrum, which are ",
          static_cast<double>(sample_rate) / n_fft, " Hz apart, and would always be 0: take fewer mels or a larger n_fft than ",
          n_fft);
  }
  /// How many mel filters no bin of the spectrum falls into.
  int empty_filters() const;
};

/// Fixed mean and deviation of every mel, for normalize = global.
struct FeatureStatistics {
  std::vector<double> mean, deviation;
};

/// Dense mel filters [mels, n_fft / 2 + 1], as librosa and HTK define them.
std::vector<double> mel_filters(const FeatureConfig& config);

class Frontend {
 public:
  /// Throws `Error` naming every key that cannot be honoured. `statistics` are needed for normalize = global only.
  explicit Frontend(const FeatureConfig& config, FeatureStatistics statistics = {});
  const FeatureConfig& config() const { return config_; }
  const FeatureStatistics& statistics() const { return statistics_; }

  /// Frames of a signal of `samples` samples.
  std::int64_t frames(std::int64_t samples) const;
  /// Log-mels [frames, mels] before normalisation, computed in T, which is float or double. A frame depends on its samples
  /// only, to the bit. Thread-safe.
  template <class T>
  std::vector<T> log_mel(std::span<const T> samples) const;
  /// The same behind `rows`.
  template <class T>
  void append_log_mel(std::span<const T> samples, std::vector<T>& rows) const;
  /// In place on [frames, mels]. per_feature: by the mean and the unbiased deviation (+ 1e-5) of each mel over these
  /// frames; a single frame has no deviation and is an error.
  template <class T>
  void normalize(std::span<T> features) const;
  /// Both.
  template <class T>
  std::vector<T> operator()(std::span<const T> samples) const;

 private:
  struct Tables;
  FeatureConfig config_;
  FeatureStatistics statistics_;
  int window_size_, hop_;
  std::shared_ptr<const Tables> tables_;
};

/// Adds normal noise of the given deviation. The noise depends on (seed, epoch, sample id, position) only.
void add_dither(std::span<float> samples, double deviation, std::uint64_t seed, std::uint64_t epoch, std::int64_t sample);

/// Sums log-mels over a corpus into the statistics for normalize = global (deviation with divisor n).
class StatisticsSum {
 public:
  explicit StatisticsSum(int mels) : sum_(mels), squares_(mels) {}
  void add(std::span<const float> features);
  FeatureStatistics result() const;

 private:
  std::int64_t count_ = 0;
  std::vector<double> sum_, squares_;
};

}  // namespace chorus
