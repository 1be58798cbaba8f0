#include <chorus/core/error.h>
#include <chorus/io/features.h>

#include <algorithm>
#include <cmath>

namespace chorus {

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
  for (double& s : scale) s = 1 / s;
  for (std::size_t t = 0; t < frames; ++t)
    for (std::size_t m = 0; m < mels; ++m)
      features[t * mels + m] = static_cast<T>((features[t * mels + m] - mean[m]) * scale[m]);
}

template void Frontend::normalize(std::span<float>) const;
template void Frontend::normalize(std::span<double>) const;

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
