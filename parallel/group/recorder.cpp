#include <chorus/core/posix_file.h>
#include <chorus/parallel/group/recorder.h>

#include <algorithm>
#include <chrono>
#include <sstream>

namespace chorus {
namespace {

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
std::string_view name(FlightRecorder::State state) {
  constexpr std::string_view names[] = {"posted", "begun", "done", "failed"};
  return names[static_cast<int>(state)];
}

}  // namespace

std::string_view name(Op op) {
  constexpr std::string_view names[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
                                        "send",       "receive",    "barrier",        "split"};
  return names[static_cast<int>(op)];
}

std::uint64_t FlightRecorder::post(const std::string& group, std::uint64_t sequence, Op op, DType dtype, std::int64_t count,
                                   int peer) {
  const std::lock_guard lock(mutex_);
  auto& total = totals_[{group, op}];
  ++total.calls;
  total.bytes += count * static_cast<std::int64_t>(size_of(dtype));
  ++posted_;
  if (ring_.empty()) return posted_;
  Entry& e = ring_[(posted_ - 1) % ring_.size()];
  e.ticket = posted_, e.sequence = sequence, e.group = group, e.op = op, e.dtype = dtype, e.count = count, e.peer = peer;
  e.posted = now(), e.begun = e.done = 0, e.state = State::posted;
  return posted_;
}

void FlightRecorder::set(std::uint64_t ticket, State state) {
  const std::lock_guard lock(mutex_);
  if (ring_.empty()) return;
  Entry& e = ring_[(ticket - 1) % ring_.size()];
  if (e.ticket != ticket) return;
  e.state = state;
  if (state == State::begun) e.begun = now();
  if (state == State::done) e.done = now();
}

std::vector<FlightRecorder::Entry> FlightRecorder::entries() const {
  const std::lock_guard lock(mutex_);
  std::vector<Entry> sorted;
  for (const Entry& e : ring_)
    if (e.ticket > 0) sorted.push_back(e);
  std::ranges::sort(sorted, {}, &Entry::ticket);
  return sorted;
}

std::string FlightRecorder::last() const {
  const auto all = entries();
  if (all.empty()) return "none";
  std::ostringstream text;
  text << name(all.back().op) << ' ' << all.back().sequence << " of group '" << all.back().group << "' ("
       << name(all.back().state) << ')';
  return text.str();
}

std::map<std::pair<std::string, Op>, FlightRecorder::Total> FlightRecorder::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

std::string FlightRecorder::text() const {
  std::ostringstream out;
  out << "{\"rank\": " << rank_ << ", \"calls\": [";
  const char* separator = "\n";
  for (const Entry& e : entries()) {
    out << separator << "{\"call\": " << e.ticket << ", \"sequence\": " << e.sequence << ", \"group\": \"" << e.group
        << "\", \"op\": \"" << name(e.op) << "\", \"type\": \"" << name(e.dtype) << "\", \"count\": " << e.count
        << ", \"peer\": " << e.peer << ", \"posted_ns\": " << e.posted << ", \"begun_ns\": " << e.begun
        << ", \"done_ns\": " << e.done << ", \"state\": \"" << name(e.state) << "\"}";
    separator = ",\n";
  }
  out << "\n]}\n";
  return out.str();
}

void FlightRecorder::write(const std::filesystem::path& folder) const {
  make_folders(folder);
  write_file_atomically(folder / ("rank-" + std::to_string(rank_) + ".json"), text());
}

}  // namespace chorus
