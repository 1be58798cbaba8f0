#include <chorus/core/error.h>
#include <chorus/io/features.h>
#include <chorus/io/fft.h>
#include <chorus/tensor/kernels/transpose.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace chorus {
namespace {

int samples_of(double seconds, int rate) { return static_cast<int>(std::llround(seconds * rate)); }

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
  // Beyond these a float overflows, or is 0.
  check(c.mag_power > 0 && c.mag_power <= 3, "mag_power " + std::to_string(c.mag_power) + " must be positive and at most 3");
  check(c.log_guard_value >= 1e-37, "log_guard_value " + std::to_string(c.log_guard_value) + " must be at least 1e-37");
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

/// out[i] = x[first + i] - p x[first + i - 1], the first sample kept and zeros around the signal, so that windows there need no
/// care.
template <class T>
void emphasize(std::span<const T> x, T p, std::int64_t first, std::span<T> out) {
  const std::int64_t begin = std::clamp<std::int64_t>(-first, 0, std::ssize(out));
  const std::int64_t end = std::clamp<std::int64_t>(std::ssize(x) - first, begin, std::ssize(out));
  std::fill(out.begin(), out.begin() + begin, T(0));
  std::fill(out.begin() + end, out.end(), T(0));
  if (begin == end) return;
  const T* from = x.data() + first;
  out[begin] = first + begin == 0 ? from[begin] : from[begin] - p * from[begin - 1];
  for (std::int64_t i = begin + 1; i < end; ++i) out[i] = from[i] - p * from[i - 1];
}

template <class T>
struct Filter {
  int first;  // bin of the first weight
  std::vector<T> weights;
};

/// What computing in T needs.
template <class T>
struct TablesOf {
  std::vector<T> window;  // zeros up to n_fft behind it
  std::vector<Filter<T>> filters;
  PowerSpectrum<T> spectrum;

  TablesOf(const FeatureConfig& c, int window_size) : window(static_cast<std::size_t>(c.n_fft)), spectrum(c.n_fft) {
    const int intervals = c.window_periodic ? window_size : window_size - 1, bins = spectrum.bins();
    for (int i = 0; i < window_size; ++i)
      window[i] = static_cast<T>(0.5 - 0.5 * std::cos(2 * std::numbers::pi * i / intervals));
    const std::vector<double> dense = mel_filters(c);
    for (int m = 0; m < c.mels; ++m) {
      const double* row = dense.data() + static_cast<std::size_t>(m) * bins;
      int first = 0, end = bins;
      while (first < end && row[first] == 0) ++first;
      while (end > first && row[end - 1] == 0) --end;
      filters.push_back({first, std::vector<T>(row + first, row + end)});
    }
  }
};

/// Windowed frames, which begin `hop` samples after each other, where the transform wants them: frame by frame in the lanes.
/// The place of the window inside n_fft moves phases only.
template <class T>
void place_windows(const T* signal, int hop, int window_size, const TablesOf<T>& use, std::span<kernel::Vec<T>> buffer) {
  constexpr int lanes = kernel::lanes<T>;
  for (int i = 0; i < std::ssize(buffer); i += lanes) {
    kernel::SquareTile<T> tile{};
    if (i < window_size) {
      tile = kernel::load_tile<T>(signal + i, hop);
      kernel::transpose<T>(tile);
    }
    const int many = std::min<int>(lanes, static_cast<int>(std::ssize(buffer)) - i);
    for (int k = 0; k < many; ++k) buffer[use.spectrum.place(i + k)] = tile[k] * use.window[i + k];
  }
}

/// out[frame, m] = values[m][frame] for the first `frames` lanes; whole tiles of values can be read.
template <class T>
void store_rows(const kernel::Vec<T>* values, std::int64_t mels, std::int64_t frames, T* out) {
  constexpr int lanes = kernel::lanes<T>;
  for (std::int64_t m = 0; m < mels; m += lanes) {
    kernel::SquareTile<T> tile;
    std::copy_n(values + m, lanes, tile.begin());
    kernel::transpose<T>(tile);
    for (std::int64_t t = 0; t < frames; ++t) {
      T* const to = out + t * mels + m;
      if (mels - m >= lanes)
        kernel::store<T>(to, tile[t]);
      else
        kernel::store<T>(to, tile[t], kernel::First{static_cast<int>(mels - m)});
    }
  }
}

}  // namespace

struct Frontend::Tables : TablesOf<float>, TablesOf<double> {
  Tables(const FeatureConfig& config, int window_size)
      : TablesOf<float>(config, window_size), TablesOf<double>(config, window_size) {}
};

Frontend::Frontend(const FeatureConfig& config, FeatureStatistics statistics)
    : config_(checked(config, statistics)),
      statistics_(std::move(statistics)),
      window_size_(samples_of(config.window_seconds, config.sample_rate)),
      hop_(samples_of(config.hop_seconds, config.sample_rate)),
      tables_(std::make_shared<const Tables>(config_, window_size_)) {}

std::int64_t Frontend::frames(std::int64_t samples) const {
  if (samples <= 0) return 0;
  if (config_.center) return samples / hop_;
  return samples <= window_size_ ? 1 : 1 + (samples - window_size_) / hop_;
}

template <class T>
std::vector<T> Frontend::log_mel(std::span<const T> samples) const {
  std::vector<T> rows;
  append_log_mel(samples, rows);
  return rows;
}

template <class T>
void Frontend::append_log_mel(std::span<const T> samples, std::vector<T>& rows) const {
  using Lanes = kernel::Vec<T>;
  constexpr int lanes = kernel::lanes<T>;  // so many frames at once
  const TablesOf<T>& use = *tables_;
  const std::int64_t count = frames(std::ssize(samples)), mels = config_.mels;
  const std::int64_t before = config_.center ? config_.n_fft / 2 - (config_.n_fft - window_size_) / 2 : 0;
  const std::size_t begin = rows.size();
  rows.resize(begin + static_cast<std::size_t>(count * mels));
  std::vector<T> signal((lanes - 1) * hop_ + window_size_ + lanes);  // of the frames at hand, and what a tile reads beyond
  std::vector<Lanes> buffer(config_.n_fft), power(use.spectrum.bins()), logs((mels + lanes - 1) / lanes * lanes);
  const Lanes guard = kernel::all(static_cast<T>(config_.log_guard_value));
  const bool add = config_.log_guard == "add";
  for (std::int64_t t = 0; t < count; t += lanes) {
    emphasize(samples, static_cast<T>(config_.preemphasis), t * hop_ - before, std::span(signal));
    place_windows(signal.data(), hop_, window_size_, use, std::span(buffer));
    use.spectrum(buffer, power);
    if (config_.mag_power != 2)
      for (Lanes& bin : power)
        for (int lane = 0; lane < lanes; ++lane) bin[lane] = std::pow(bin[lane], static_cast<T>(config_.mag_power / 2));
    for (std::int64_t m = 0; m < mels; ++m) {
      const Filter<T>& filter = use.filters[m];
      Lanes sum{};
      for (std::size_t k = 0; k < filter.weights.size(); ++k) sum += power[filter.first + k] * filter.weights[k];
      logs[m] = sum;
    }
    for (Lanes& x : logs) x = kernel::log<T>(add ? x + guard : kernel::maximum<T>(x, guard));
    T* const out = rows.data() + begin + static_cast<std::size_t>(t * mels);
    store_rows(logs.data(), mels, std::min<std::int64_t>(lanes, count - t), out);
  }
}

template <class T>
std::vector<T> Frontend::operator()(std::span<const T> samples) const {
  std::vector<T> features = log_mel<T>(samples);
  normalize<T>(features);
  return features;
}

template std::vector<float> Frontend::log_mel(std::span<const float>) const;
template std::vector<double> Frontend::log_mel(std::span<const double>) const;
template void Frontend::append_log_mel(std::span<const float>, std::vector<float>&) const;
template void Frontend::append_log_mel(std::span<const double>, std::vector<double>&) const;
template std::vector<float> Frontend::operator()(std::span<const float>) const;
template std::vector<double> Frontend::operator()(std::span<const double>) const;

}  // namespace chorus
