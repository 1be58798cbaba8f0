// Curves with thousands of steps, cut into as many pieces as a screen can show.
#pragma once
#include <chorus/apps/report/read.h>

#include <span>

namespace chorus::report {

/// Consecutive steps of one phase. What is no finite number is left out of mean, min and max, which are NaN where nothing is
/// left.
struct Bucket {
  std::int64_t first = 0, last = 0;  ///< steps
  double mean = 0, min = 0, max = 0;
};

/// At most about `most` buckets (each phase begins a new one); short curves keep every step.
std::vector<Bucket> buckets(const Run& run, std::span<const double> values, std::size_t most = 300);
/// The same of a column; empty when the run has no such column or nothing finite in it.
std::vector<Bucket> buckets(const Run& run, std::string_view column, std::size_t most = 300);

/// Round numbers in [low, high], at most `most`, at steps of 1, 2 or 5 times a power of ten.
std::vector<double> linear_ticks(double low, double high, int most);
/// 1, 2, 5, 10, ... in [low, high]; only powers of ten where those are enough. Both ends are positive.
std::vector<double> log_ticks(double low, double high, int most);

/// Sums, means and medians that a report shows; NaN without values. Not-a-number among the values is left out.
double sum(std::span<const double> values);
double mean(std::span<const double> values);
double median(std::span<const double> values);
double largest(std::span<const double> values);

}  // namespace chorus::report
