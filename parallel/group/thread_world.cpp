#include <chorus/core/cpu.h>
#include <chorus/parallel/group/thread_world.h>

#include <thread>

namespace chorus::threads {

World::World(int ranks, const ThreadOptions& given)
    : options(given), spin(given.spin_seconds > 0 && ranks <= compute_threads()) {
  for (int r = 0; r < ranks; ++r) {
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->recorder = std::make_shared<FlightRecorder>(r, options.recorded_calls);
  }
}

void World::fail(int rank, const std::string& cause, bool leaving) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_rank_ >= 0) return;
    failed_rank_ = rank;
    leaving_ = leaving;
    cause_ = cause;
    failed_.store(true);
  }
  for (int r = 0; r < size(); ++r) wake(r);
  if (options.record_folder.empty()) return;
  try {
    for (int r = 0; r < size(); ++r) recorder(r)->write(options.record_folder);
  } catch (const std::exception& e) {
    const std::lock_guard lock(mutex_);
    cause_ += std::string("; the last calls could not be written: ") + e.what();
  }
}

std::string World::cause() const {
  const std::lock_guard lock(mutex_);
  return cause_;
}

void World::quiesce(int rank) const {
  for (int r = 0; r < size(); ++r)
    while (r != rank && rank_of(r).working.load()) std::this_thread::yield();
}

void World::left(int rank, const std::string* cause) {
  if (cause) {
    const std::string text =
        "rank " + std::to_string(rank) + ": " + *cause + " (its last call: " + recorder(rank)->last() + ")";
    fail(rank, text);
    const std::lock_guard lock(mutex_);
    if (failed_rank_ == rank && leaving_) cause_ = text, leaving_ = false;
  }
  rank_of(rank).left.store(true);
  for (int r = 0; r < size(); ++r) wake(r);  // who waits for a call that it will never make
}

}  // namespace chorus::threads
