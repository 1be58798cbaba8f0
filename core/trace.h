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
    double seconds = 0;  ///< without what spans inside it took, so that totals add up to the time traced
    double flops = 0, bytes = 0;
  };

  /// `most_events` bounds what `record` keeps: the newest ones.
  explicit Trace(std::size_t most_events = 1'000'000);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  bool on() const { return summing_ || events_; }
  void sum(bool enabled) { summing_ = enabled; }    ///< keep totals by name
  void record(bool enabled) { events_ = enabled; }  ///< keep single events for `write`
  /// `inner`: seconds of the spans inside this one.
  void add(const char* name, std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end,
           double flops, double bytes, double inner = 0);
  std::map<std::string, Total> totals() const;
  void reset();
  /// Chrome trace JSON ("traceEvents", phase X, microseconds), readable by Perfetto; pid is the rank, tid the thread.
  void write(const std::filesystem::path& file, int rank = 0) const;

 private:
  std::atomic<bool> summing_ = false, events_ = false;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Measures its own lifetime. `name` must be a string literal. Spans of one thread nest like their scopes.
class Span {
 public:
  Span(Trace& trace, const char* name, double flops = 0, double bytes = 0)
      : trace_(trace.on() ? &trace : nullptr), name_(name), flops_(flops), bytes_(bytes) {
    if (trace_) open();
  }
  ~Span() {
    if (trace_) close();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void open();
  void close();
  Trace* trace_;
  const char* name_;
  double flops_, bytes_, inner_ = 0;
  Span* outer_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace chorus
