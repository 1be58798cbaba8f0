#include <chorus/core/posix_file.h>
#include <chorus/core/trace.h>

#include <iomanip>
#include <mutex>
#include <sstream>
#include <thread>
#include <unordered_map>
#include <vector>

namespace chorus {
namespace {

struct Event {
  const char* name;
  std::int64_t begin, nanoseconds;  // begin counts from the epoch of the steady clock: ranks of one machine share it
  double flops, bytes;
  int thread;
};

std::string quoted(std::string_view text) {
  std::ostringstream out;
  out << '"';
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out << '\\' << c;
    else if (static_cast<unsigned char>(c) < 0x20)
      out << "\\u" << std::hex << std::setw(4) << std::setfill('0') << static_cast<int>(c) << std::dec;
    else
      out << c;
  }
  out << '"';
  return out.str();
}

std::int64_t nanoseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

}  // namespace

struct Trace::Impl {
  int thread_number() {
    return threads.try_emplace(std::this_thread::get_id(), static_cast<int>(threads.size())).first->second;
  }
  // Oldest first, although the ring may have wrapped around.
  template <class F>
  void for_each(F f) const {
    for (std::size_t i = 0; i < events.size(); ++i) f(events[(oldest + i) % events.size()]);
  }

  std::size_t most_events = 0;
  mutable std::mutex mutex;
  std::unordered_map<const char*, Total> totals;  // by address: one literal may have several, `totals()` merges them
  std::vector<Event> events;                      // a ring once full
  std::size_t oldest = 0;
  std::size_t left_out = 0;  // events that newer ones have replaced
  std::unordered_map<std::thread::id, int> threads;
};

Trace::Trace(std::size_t most_events) : impl_(std::make_unique<Impl>()) { impl_->most_events = most_events; }
Trace::~Trace() = default;

namespace {
/// The innermost open span of this thread: the shape of its call stack, not a setting.
thread_local Span* innermost = nullptr;
}  // namespace

void Span::open() {
  outer_ = innermost;
  innermost = this;
  begin_ = std::chrono::steady_clock::now();
}

void Span::close() {
  const auto end = std::chrono::steady_clock::now();
  innermost = outer_;
  if (outer_ && outer_->trace_ == trace_) outer_->inner_ += std::chrono::duration<double>(end - begin_).count();
  trace_->add(name_, begin_, end, flops_, bytes_, inner_);
}

void Trace::add(const char* name, std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end,
                double flops, double bytes, double inner) {
  const std::lock_guard lock(impl_->mutex);
  if (summing_) {
    auto& total = impl_->totals[name];
    ++total.count;
    total.seconds += std::chrono::duration<double>(end - begin).count() - inner;
    total.flops += flops;
    total.bytes += bytes;
  }
  if (!events_) return;
  const Event event{
      name, nanoseconds(begin.time_since_epoch()), nanoseconds(end - begin), flops, bytes, impl_->thread_number()};
  if (impl_->events.size() < impl_->most_events) {
    impl_->events.push_back(event);
  } else if (!impl_->events.empty()) {
    impl_->events[impl_->oldest] = event;
    impl_->oldest = (impl_->oldest + 1) % impl_->events.size();
    ++impl_->left_out;
  }
}

std::map<std::string, Trace::Total> Trace::totals() const {
  const std::lock_guard lock(impl_->mutex);
  std::map<std::string, Total> merged;
  for (const auto& [name, part] : impl_->totals) {
    auto& total = merged[name];
    total.count += part.count;
    total.seconds += part.seconds;
    total.flops += part.flops;
    total.bytes += part.bytes;
  }
  return merged;
}

void Trace::reset() {
  const std::lock_guard lock(impl_->mutex);
  impl_->totals.clear();
  impl_->events.clear();
  impl_->oldest = 0;
  impl_->left_out = 0;
}

void Trace::write(const std::filesystem::path& file, int rank) const {
  std::ostringstream out;
  out << R"({"traceEvents":[)" << '\n'
      << R"({"ph":"M","name":"process_name","pid":)" << rank << R"(,"args":{"name":"rank )" << rank << "\"}}";
  out << std::fixed << std::setprecision(3);
  const std::lock_guard lock(impl_->mutex);
  impl_->for_each([&](const Event& e) {
    out << ",\n{\"ph\":\"X\",\"name\":" << quoted(e.name) << ",\"pid\":" << rank << ",\"tid\":" << e.thread
        << ",\"ts\":" << static_cast<double>(e.begin) * 1e-3 << ",\"dur\":" << static_cast<double>(e.nanoseconds) * 1e-3;
    if (e.flops > 0 || e.bytes > 0) {
      // A span of 0 ns has no rate; 1 ns is the clock's resolution.
      const double seconds = static_cast<double>(std::max<std::int64_t>(e.nanoseconds, 1)) * 1e-9;
      out << ",\"args\":{\"gflop_per_s\":" << e.flops / seconds * 1e-9 << ",\"gbyte_per_s\":" << e.bytes / seconds * 1e-9
          << '}';
    }
    out << '}';
  });
  out << "\n],\"otherData\":{\"spans\":" << impl_->events.size() << ",\"left_out\":" << impl_->left_out;
  // Whoever looks at the first milliseconds must know that there were others before them.
  if (impl_->left_out > 0)
    out << ",\"note\":\"only the newest " << impl_->most_events << " spans are kept; " << impl_->left_out
        << " older ones are left out\"";
  out << "}}\n";
  write_file_atomically(file, std::move(out).str());
}

}  // namespace chorus
