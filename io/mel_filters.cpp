#include <chorus/io/features.h>

#include <algorithm>
#include <cmath>

namespace chorus {
namespace {

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

}  // namespace chorus
