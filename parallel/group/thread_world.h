// What the threads of one world share: who has failed, who sleeps, who is at work on others' memory. Used by threads.cpp alone.
#pragma once
#include <chorus/parallel/group/threads.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace chorus::threads {

class World {
 public:
  World(int ranks, const ThreadOptions& options);

  const ThreadOptions options;
  const bool spin;  ///< whether a core is there for every rank
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::shared_ptr<FlightRecorder>& recorder(int rank) const { return rank_of(rank).recorder; }

  bool failed() const { return failed_.load(); }
  /// The first failure counts. `leaving`: a rank unwinds from an exception whose text comes later (see `left`). Wakes everybody
  /// and writes the recorders.
  void fail(int rank, const std::string& cause, bool leaving = false);
  std::string cause() const;
  /// Waits until nobody is at work on the memory of a rank that is about to throw. No work begins after a failure.
  void quiesce(int rank) const;

  /// The rank's function has returned, or thrown `cause`.
  void left(int rank, const std::string* cause);
  bool has_left(int rank) const { return rank_of(rank).left.load(); }

  /// Runs `work` unless the world has failed; returns whether it ran.
  template <class F>
  bool at_work(int rank, F&& work) {
    auto& flag = rank_of(rank).working;
    flag.store(true);  // before looking for a failure: whoever fails looks at the flags afterwards
    const bool runs = !failed();
    if (runs) work();
    flag.store(false);
    return runs;
  }

  /// Sleeps until `ready()`, which may look at atomics only, or until `end`; returns ready().
  template <class F>
  bool sleep(int rank, std::chrono::steady_clock::time_point end, F&& ready) {
    Rank& own = rank_of(rank);
    own.asleep.store(true);
    std::unique_lock lock(own.mutex);
    const bool is_ready = own.bell.wait_until(lock, end, ready);
    own.asleep.store(false);
    return is_ready;
  }
  /// After a change of what a rank may be sleeping for.
  void wake(int rank) {
    Rank& other = rank_of(rank);
    if (!other.asleep.load()) return;
    { const std::lock_guard lock(other.mutex); }  // it is now before its last look or really asleep
    other.bell.notify_all();
  }

 private:
  struct alignas(64) Rank {
    std::atomic<bool> asleep = false, working = false, left = false;
    std::mutex mutex;
    std::condition_variable bell;
    std::shared_ptr<FlightRecorder> recorder;
  };
  Rank& rank_of(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::atomic<bool> failed_ = false;
  mutable std::mutex mutex_;
  std::string cause_;
  int failed_rank_ = -1;
  bool leaving_ = false;
};

}  // namespace chorus::threads
