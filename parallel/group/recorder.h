// What a rank's groups did last: kept in a ring, written when a group fails, so that a hang can be explained afterwards.
#pragma once
#include <chorus/tensor/dtype.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace chorus {

enum class Op : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, receive, barrier, split };
std::string_view name(Op op);

/// The last calls of one rank, over all groups of its world. Thread-safe: other ranks read it to say whom they wait for.
class FlightRecorder {
 public:
  enum class State : std::uint8_t { posted, begun, done, failed };
  struct Entry {
    std::uint64_t ticket = 0;    ///< number of the call among all of this rank, from 1
    std::uint64_t sequence = 0;  ///< and in its group (send and receive: among those with that peer)
    std::string group;
    Op op = Op::barrier;
    DType dtype = DType::f32;
    std::int64_t count = 0;  ///< elements that this rank gives or, if more, takes
    int peer = -1;
    std::int64_t posted = 0, begun = 0, done = 0;  ///< nanoseconds of the steady clock; 0: not yet
    State state = State::posted;
  };
  /// Sums over the whole run, by group and operation.
  struct Total {
    std::int64_t calls = 0, bytes = 0;  ///< bytes: of the entries' counts
  };

  FlightRecorder(int world_rank, std::size_t calls) : rank_(world_rank), ring_(calls) {}

  std::uint64_t post(const std::string& group, std::uint64_t sequence, Op op, DType dtype, std::int64_t count, int peer);
  void set(std::uint64_t ticket, State state);  ///< nothing if the ring has passed on

  int world_rank() const { return rank_; }
  std::vector<Entry> entries() const;  ///< oldest first
  std::string last() const;            ///< "all_reduce 12 of group 'world' (done)", or "none"
  std::map<std::pair<std::string, Op>, Total> totals() const;
  /// One JSON object: rank, calls (an array of entries).
  std::string text() const;
  /// Writes it to folder/rank-N.json; the folder is made.
  void write(const std::filesystem::path& folder) const;

 private:
  const int rank_;
  mutable std::mutex mutex_;
  std::uint64_t posted_ = 0;
  std::vector<Entry> ring_;
  std::map<std::pair<std::string, Op>, Total> totals_;
};

}  // namespace chorus
