#include <chorus/core/error.h>
#include <chorus/io/fft.h>

#include <bit>
#include <numbers>

namespace chorus {
namespace {

/// Complex numbers in every lane.
template <class V>
struct Point {
  V re, im;
  Point operator+(Point b) const { return {re + b.re, im + b.im}; }
  Point operator-(Point b) const { return {re - b.re, im - b.im}; }
  Point turned() const { return {im, -re}; }  ///< times -i
  template <class T>
  Point operator*(std::complex<T> w) const {
    return {re * w.real() - im * w.imag(), re * w.imag() + im * w.real()};
  }
};

}  // namespace

template <class T>
PowerSpectrum<T>::PowerSpectrum(int n) : n_(n) {
  require(n >= 4 && std::has_single_bit(static_cast<unsigned>(n)), "PowerSpectrum", "size ", n, " must be a power of two >= 4");
  for (int k = 0; k < n; ++k) roots_.emplace_back(std::polar(1.0, -2 * std::numbers::pi * k / n));
  const int half = n / 2;
  reversed_.assign(half, 0);
  for (int i = 1; i < half; ++i) reversed_[i] = reversed_[i / 2] / 2 + (i % 2 ? half / 2 : 0);
}

// The even samples are taken as real and the odd ones as imaginary parts of n/2 points; the spectrum of the real signal
// is then X[k] = (Z[k] + conj Z[m-k]) / 2 - i w^k (Z[k] - conj Z[m-k]) / 2 with m = n/2, w = e^(-2 pi i / n).
template <class T>
void PowerSpectrum<T>::operator()(std::span<Lanes> signal, std::span<Lanes> power) const {
  require(static_cast<int>(signal.size()) == n_ && static_cast<int>(power.size()) == bins(), "PowerSpectrum", signal.size(),
          " samples and ", power.size(), " bins where ", n_, " and ", bins(), " are needed");
  const int m = n_ / 2;
  Lanes* z = signal.data();
  const auto at = [z](int i) { return Point<Lanes>{z[2 * i], z[2 * i + 1]}; };
  const auto put = [z](int i, Point<Lanes> x) { z[2 * i] = x.re, z[2 * i + 1] = x.im; };
  int span = 1;
  if (std::countr_zero(static_cast<unsigned>(m)) % 2) {  // an odd number of halvings: one radix-2 pass, then radix 4
    for (int i = 0; i < m; i += 2) {
      const auto a = at(i), b = at(i + 1);
      put(i, a + b);
      put(i + 1, a - b);
    }
    span = 2;
  }
  for (; span < m; span *= 4) {
    for (int k = 0; k < span; ++k) {
      const int step = k * (n_ / (4 * span));
      const std::complex<T> w1 = roots_[step], w2 = roots_[2 * step], w3 = roots_[3 * step];
      for (int i = k; i < m; i += 4 * span) {
        // Two passes of radix 2 at once; bit reversal exchanges the second and third quarter.
        const auto a = at(i), b = at(i + span) * w2, c = at(i + 2 * span) * w1, d = at(i + 3 * span) * w3;
        const auto even = a + b, odd = a - b, sum = c + d, difference = (c - d).turned();
        put(i, even + sum);
        put(i + span, odd + difference);
        put(i + 2 * span, even - sum);
        put(i + 3 * span, odd - difference);
      }
    }
  }
  const auto norm = [](Point<Lanes> x) { return x.re * x.re + x.im * x.im; };
  power[0] = (z[0] + z[1]) * (z[0] + z[1]);
  power[m] = (z[0] - z[1]) * (z[0] - z[1]);
  for (int k = 1; k <= m / 2; ++k) {  // X[m-k] is conj (Z[k] + conj Z[m-k]) / 2 + i w^k (Z[k] - conj Z[m-k]) / 2
    const Point<Lanes> a = at(k), b{at(m - k).re, -at(m - k).im};
    const Point<Lanes> even = a + b, odd = (a - b).turned() * roots_[k];
    power[k] = norm(even + odd) * T(0.25);
    power[m - k] = norm(even - odd) * T(0.25);
  }
}

template class PowerSpectrum<float>;
template class PowerSpectrum<double>;

}  // namespace chorus
