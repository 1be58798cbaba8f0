// Power spectra of real signals, eight at a time.
#pragma once
#include <Eigen/Core>
#include <complex>
#include <span>
#include <vector>

namespace chorus {

/// |DFT|^2 of real rows of n samples, n a power of two >= 4. Eight rows ride in the lanes of a vector through one plain
/// radix-2 transform, so every row gets the same arithmetic whatever its neighbours are.
class PowerSpectrum {
 public:
  using Lanes = Eigen::Array<double, 8, 1>;
  static constexpr int lanes = 8;

  explicit PowerSpectrum(int n);
  int size() const { return n_; }
  int bins() const { return n_ / 2 + 1; }
  /// `signal` [n] is overwritten; `power` [bins].
  void operator()(std::span<Lanes> signal, std::span<Lanes> power) const;

 private:
  int n_;
  std::vector<std::complex<double>> roots_;  // e^(-2 pi i k / n), k < n / 2
  std::vector<int> reversed_;                // bit reversal of n / 2 points
};

}  // namespace chorus
