// Spans of time, summed by name and written as Chrome trace JSON.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

namespace chorus {

/// Collects spans of one rank. Thread-safe. Costs one branch while off.
class Trace {
 public:
  struct Total {
    std::int64_t count = 0;
    double seconds = 0, flops = 0, bytes = 0;
  };

  /// `most_events` bounds what `record` keeps: the newest ones.
  explicit Trace(std::size_t most_events = 1'000'000);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  bool on() const { return summing_ || events_; }
  void sum(bool enabled) { summing_ = enabled; }    ///< keep totals by name
  void record(bool enabled) { events_ = enabled; }  ///< keep single events for `write`
  void add(const char* name, std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end,
           double flops, double bytes);
  std::map<std::string, Total> totals() const;  ///< names nest by time only; a caller's span includes its callees
  void reset();
  /// Chrome trace JSON ("traceEvents", phase X, microseconds), readable by Perfetto; pid is the rank, tid the thread.
  void write(const std::filesystem::path& file, int rank = 0) const;

 private:
  std::atomic<bool> summing_ = false, events_ = false;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Measures its own lifetime. `name` must be a string literal.
class Span {
 public:
  Span(Trace& trace, const char* name, double flops = 0, double bytes = 0)
      : trace_(trace.on() ? &trace : nullptr), name_(name), flops_(flops), bytes_(bytes) {
    if (trace_) begin_ = std::chrono::steady_clock::now();
  }
  ~Span() {
    if (trace_) trace_->add(name_, begin_, std::chrono::steady_clock::now(), flops_, bytes_);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  Trace* trace_;
  const char* name_;
  double flops_, bytes_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace chorus
