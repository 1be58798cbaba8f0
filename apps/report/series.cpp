#include <chorus/apps/report/series.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace chorus::report {
namespace {

constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

std::vector<double> finite(std::span<const double> values) {
  std::vector<double> out;
  std::ranges::copy_if(values, std::back_inserter(out), [](double x) { return std::isfinite(x); });
  return out;
}

Bucket bucket(std::span<const std::int64_t> steps, std::span<const double> values) {
  const auto numbers = finite(values);
  if (numbers.empty()) return {steps.front(), steps.back(), no_value, no_value, no_value};
  const auto [low, high] = std::ranges::minmax(numbers);
  // Rounding must not lift a mean of equal values over them.
  return {steps.front(), steps.back(), std::clamp(mean(numbers), low, high), low, high};
}

}  // namespace

std::vector<Bucket> buckets(const Run& run, std::span<const double> values, std::size_t most) {
  std::vector<Bucket> out;
  const std::span<const std::int64_t> steps = run.steps;
  const std::size_t width = (values.size() + most - 1) / most;
  std::size_t begin = 0;
  for (const auto& phase : run.phases) {
    std::size_t end = begin;
    while (end < steps.size() && steps[end] <= phase.last) ++end;
    for (; begin < end; begin += std::min(width, end - begin)) {
      const std::size_t n = std::min(width, end - begin);
      out.push_back(bucket(steps.subspan(begin, n), values.subspan(begin, n)));
    }
  }
  return out;
}

std::vector<Bucket> buckets(const Run& run, std::string_view column, std::size_t most) {
  const auto* values = run.column(column);
  if (!values || std::ranges::none_of(*values, [](double x) { return std::isfinite(x); })) return {};
  return buckets(run, std::span<const double>(*values), most);
}

std::vector<double> linear_ticks(double low, double high, int most) {
  if (!(high > low)) return {low};
  double step = std::pow(10.0, std::floor(std::log10((high - low) / most)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (std::floor(high / (step * factor) + 1e-9) - std::ceil(low / (step * factor) - 1e-9) + 1 > most) continue;
    step *= factor;
    break;
  }
  std::vector<double> ticks;
  for (double k = std::ceil(low / step - 1e-9); k <= high / step + 1e-9; ++k) ticks.push_back(k == 0 ? 0 : k * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high, int most) {
  const auto collect = [&](std::initializer_list<double> factors, int stride) {
    std::vector<double> ticks;
    const int first = static_cast<int>(std::floor(std::log10(low))), last = static_cast<int>(std::ceil(std::log10(high)));
    for (int power = first; power <= last; ++power) {
      if (power % stride != 0) continue;
      for (const double factor : factors) {
        const double tick = factor * std::pow(10.0, power);
        if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push_back(tick);
      }
    }
    return ticks;
  };
  const auto fits = [&](const std::vector<double>& ticks) { return static_cast<int>(ticks.size()) <= most; };
  for (const auto& ticks : {collect({1, 2, 5}, 1), collect({1, 3}, 1), collect({1}, 1)})
    if (fits(ticks)) return ticks;
  for (int stride = 2;; ++stride)
    if (const auto ticks = collect({1}, stride); fits(ticks)) return ticks;
}

double sum(std::span<const double> values) {
  double total = 0;
  for (const double x : finite(values)) total += x;
  return total;
}

double mean(std::span<const double> values) {
  const auto numbers = finite(values);
  return numbers.empty() ? no_value : sum(numbers) / static_cast<double>(numbers.size());
}

double median(std::span<const double> values) {
  auto numbers = finite(values);
  if (numbers.empty()) return no_value;
  std::ranges::sort(numbers);
  const std::size_t half = numbers.size() / 2;
  return numbers.size() % 2 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

double largest(std::span<const double> values) {
  const auto numbers = finite(values);
  return numbers.empty() ? no_value : std::ranges::max(numbers);
}

}  // namespace chorus::report
