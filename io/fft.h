// Power spectra of real signals, one in every lane of a vector.
#pragma once
#include <chorus/tensor/kernels/vec.h>

#include <complex>
#include <span>
#include <vector>

namespace chorus {

/// |DFT|^2 of real rows of n samples, n a power of two >= 4. Rows ride in the lanes of a vector through one plain transform, so
/// every row gets the same arithmetic whatever its neighbours are. T is float or double.
template <class T>
class PowerSpectrum {
 public:
  using Lanes = kernel::Vec<T>;
  static constexpr int lanes = kernel::lanes<T>;

  explicit PowerSpectrum(int n);
  int size() const { return n_; }
  int bins() const { return n_ / 2 + 1; }
  /// Where in `signal` sample i must lie: whoever writes the samples there spares a pass over them.
  int place(int i) const { return 2 * reversed_[static_cast<std::size_t>(i / 2)] + i % 2; }
  /// `signal` [n] is overwritten; `power` [bins].
  void operator()(std::span<Lanes> signal, std::span<Lanes> power) const;

 private:
  int n_;
  std::vector<std::complex<T>> roots_;  // e^(-2 pi i k / n), k < n
  std::vector<int> reversed_;           // bit reversal of n / 2 points
};

}  // namespace chorus
