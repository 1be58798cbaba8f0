#include <chorus/core/error.h>
#include <chorus/io/fft.h>

#include <bit>
#include <numbers>

namespace chorus {

PowerSpectrum::PowerSpectrum(int n) : n_(n) {
  require(n >= 4 && std::has_single_bit(static_cast<unsigned>(n)), "PowerSpectrum", "size ", n, " must be a power of two >= 4");
  const int half = n / 2;
  roots_.resize(half);
  for (int k = 0; k < half; ++k) roots_[k] = std::polar(1.0, -2 * std::numbers::pi * k / n);
  reversed_.assign(half, 0);
  for (int i = 1; i < half; ++i) reversed_[i] = reversed_[i / 2] / 2 + (i % 2 ? half / 2 : 0);
}

// The even samples are taken as real and the odd ones as imaginary parts of n/2 points; the spectrum of the real signal
// is then X[k] = (Z[k] + conj Z[m-k]) / 2 - i w^k (Z[k] - conj Z[m-k]) / 2 with m = n/2, w = e^(-2 pi i / n).
void PowerSpectrum::operator()(std::span<Lanes> signal, std::span<Lanes> power) const {
  require(static_cast<int>(signal.size()) == n_ && static_cast<int>(power.size()) == bins(), "PowerSpectrum", signal.size(),
          " samples and ", power.size(), " bins where ", n_, " and ", bins(), " are needed");
  const int m = n_ / 2;
  Lanes* z = signal.data();  // point j: real part z[2j], imaginary part z[2j + 1]
  for (int i = 0; i < m; ++i) {
    if (const int j = reversed_[i]; i < j) {
      z[2 * i].swap(z[2 * j]);
      z[2 * i + 1].swap(z[2 * j + 1]);
    }
  }
  for (int span = 1; span < m; span *= 2) {
    for (int k = 0; k < span; ++k) {
      const std::complex<double> w = roots_[k * (m / span)];
      for (int i = k; i < m; i += 2 * span) {
        Lanes *a = z + 2 * i, *b = z + 2 * (i + span);
        const Lanes re = b[0] * w.real() - b[1] * w.imag(), im = b[0] * w.imag() + b[1] * w.real();
        b[0] = a[0] - re;
        b[1] = a[1] - im;
        a[0] += re;
        a[1] += im;
      }
    }
  }
  power[0] = (z[0] + z[1]).square();
  power[m] = (z[0] - z[1]).square();
  for (int k = 1; k < m; ++k) {
    const Lanes *a = z + 2 * k, *b = z + 2 * (m - k);
    const std::complex<double> w = roots_[k];
    const Lanes even_re = a[0] + b[0], even_im = a[1] - b[1];  // Z[k] + conj Z[m-k]
    const Lanes odd_re = a[1] + b[1], odd_im = b[0] - a[0];    // -i (Z[k] - conj Z[m-k])
    const Lanes re = even_re + odd_re * w.real() - odd_im * w.imag();
    const Lanes im = even_im + odd_re * w.imag() + odd_im * w.real();
    power[k] = (re.square() + im.square()) * 0.25;
  }
}

}  // namespace chorus
