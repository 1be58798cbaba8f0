// Log-mel features of speech: what the encoder sees.
#pragma once
#include <chorus/io/fft.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace chorus {

/// The defaults are the front end of NeMo's FastConformer models. All arithmetic is double, whatever the storage.
struct FeatureConfig {
  int sample_rate = 16000;           ///< Hz; sound files are resampled to it
  double window_seconds = 0.025;     ///< Hann window
  double hop_seconds = 0.01;         ///< one frame per hop
  int n_fft = 512;                   ///< power of two >= window; the window sits in its middle
  int mels = 128;                    ///< filters
  double fmin = 0, fmax = 0;         ///< Hz; fmax 0 is half the sample rate
  std::string mel_scale = "slaney";  ///< slaney (linear to 1 kHz, then logarithmic) | htk
  std::string mel_norm = "slaney";   ///< slaney (each filter has area 1) | none (each peaks at 1)
  double preemphasis = 0.97;         ///< y[t] = x[t] - p x[t-1], the first sample kept
  double dither = 1e-5;              ///< deviation of the noise added to samples, in training only
  bool window_periodic = false;      ///< Hann over window (periodic) or window - 1 (symmetric) intervals
  bool center = true;                ///< frame t is centred at t * hop, with zeros around the signal: floor(n / hop) frames;
                       ///< otherwise it starts there and lies within: 1 + floor((n - window) / hop), zeros up to one window
  double mag_power = 2;           ///< 1: magnitude, 2: power
  std::string log_guard = "add";  ///< log(x + value) for add, log(max(x, value)) for clamp
  double log_guard_value = 0x1p-24;
  std::string normalize = "per_feature";  ///< per_feature | global | none

  template <class V>
  void fields(V&& v) {
    v("sample_rate", sample_rate), v("window_seconds", window_seconds), v("hop_seconds", hop_seconds), v("n_fft", n_fft);
    v("mels", mels), v("fmin", fmin), v("fmax", fmax), v("mel_scale", mel_scale), v("mel_norm", mel_norm);
    v("preemphasis", preemphasis), v("dither", dither), v("window_periodic", window_periodic), v("center", center);
    v("mag_power", mag_power), v("log_guard", log_guard), v("log_guard_value", log_guard_value), v("normalize", normalize);
  }
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
  /// Log-mels [frames, mels] before normalisation. T is float or double. Thread-safe.
  template <class T>
  std::vector<T> log_mel(std::span<const T> samples) const;
  /// In place on [frames, mels]. per_feature: by the mean and the unbiased deviation (+ 1e-5) of each mel over these
  /// frames; a single frame has no deviation and is an error.
  template <class T>
  void normalize(std::span<T> features) const;
  /// Both.
  template <class T>
  std::vector<T> operator()(std::span<const T> samples) const;

 private:
  struct Filter {
    int first;  // bin of the first weight
    std::vector<double> weights;
  };
  FeatureConfig config_;
  FeatureStatistics statistics_;
  int window_size_, hop_;
  std::vector<double> window_;
  std::vector<Filter> filters_;
  PowerSpectrum spectrum_;
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
