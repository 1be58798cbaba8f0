// Ranks that work together: threads of one process, processes, GPUs, or one alone. Every rank of a group makes the same calls
// in the same order. What a reduction gives is equal bit for bit on all ranks and depends on the ranks' values and their number
// only: values are added in order of rank (bf16 in f32, rounded once), whatever the size, the kind of group or whether the call
// waits. (NCCL chooses its own order; there only equality between ranks holds.)
#pragma once
#include <chorus/parallel/group/pending.h>
#include <chorus/parallel/group/recorder.h>
#include <chorus/tensor/tensor.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace chorus {

/// Elements in memory that a collective reads. Any number of them, also none and more than 2^31.
struct ConstElements {
  const void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  ConstElements() = default;
  ConstElements(const void* data, std::int64_t count, DType dtype) : data(data), count(count), dtype(dtype) {}
  ConstElements(const Tensor& t) : data(t.data()), count(t.numel()), dtype(t.dtype()) {}
  template <class T>
  ConstElements(std::span<T> s)
      : data(s.data()), count(static_cast<std::int64_t>(s.size())), dtype(dtype_of<std::remove_const_t<T>>) {}
};
/// Elements that it writes.
struct Elements {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  Elements() = default;
  Elements(void* data, std::int64_t count, DType dtype) : data(data), count(count), dtype(dtype) {}
  Elements(const Tensor& t) : data(t.data()), count(t.numel()), dtype(t.dtype()) {}
  template <class T>
  requires(!std::is_const_v<T>) Elements(std::span<T> s)
      : data(s.data()), count(static_cast<std::int64_t>(s.size())), dtype(dtype_of<T>) {}
  operator ConstElements() const { return {data, count, dtype}; }
};

/// Sums are differentiable and what parallel schemes are made of; maxima and minima are for statistics and flags. Of
/// floating types and integers of 32 and 64 bits; integer sums wrap around. A NaN wins every maximum and minimum.
enum class Reduce : std::uint8_t { sum, max, min };

class Group;

/// The group can't go on, whoever is to blame: nobody who only meant to survive an error of their own may catch it.
class GroupEnded : public Error {
 public:
  using Error::Error;
};

/// One call as its group sees it. The spans and what they point to live while it is being started.
struct Call {
  Op op = Op::barrier;
  Reduce reduce = Reduce::sum;
  ConstElements in = {};
  Elements out = {};
  std::span<const std::int64_t> send = {}, receive = {};  ///< elements for or from each rank; empty where all have the same
  const Group* group = nullptr;                           ///< whose call it is
  int peer = -1;                                          ///< root, or the other rank
  std::uint64_t sequence = 0;  ///< of this group's collectives, or of the messages to or from `peer`, from 1
  std::uint64_t ticket = 0;    ///< in the flight recorder

  DType dtype() const { return op == Op::send ? in.dtype : out.dtype; }
  /// What all ranks must agree on: "all_reduce(sum) of 12 f32".
  std::string describe() const;
};

struct GroupOptions {
  double time_limit = 600;              ///< seconds that a call waits for other ranks
  std::filesystem::path record_folder;  ///< where every rank's last calls are written on failure: rank-N.json; empty: nowhere
  std::size_t recorded_calls = 100;     ///< how many those are
  /// Sees each call of each rank of the world before it starts; tests delay ranks by it. Called from all ranks' threads.
  std::function<void(const Call&, int world_rank)> observe;
};

/// All calls check their arguments and throw an Error that names the group, the rank, the call and its number in the sequence
/// when the group can't go on: another rank threw, did not come within the time limit, or made another call. Then all groups of
/// the same world have ended. One thread of a rank calls at a time.
class Group {
 public:
  virtual ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  const std::string& name() const { return name_; }             ///< "world", "tp" ...: for messages
  const std::vector<int>& members() const { return members_; }  ///< rank of each member in the world
  FlightRecorder& recorder() const { return *recorder_; }       ///< of this rank, for all groups of the world

  /// x = the reduction of every rank's x, in place. Equal counts everywhere.
  void all_reduce(Elements x, Reduce reduce = Reduce::sum) { start_all_reduce(x, reduce).wait(); }
  /// Rank r's part of `out` becomes its `in`, of counts[r] elements; parts lie in order of rank. `in` may be where its part
  /// goes.
  void all_gather(ConstElements in, Elements out, std::span<const std::int64_t> counts) {
    start_all_gather(in, out, counts).wait();
  }
  /// out = this rank's part, of counts[rank] elements, of the sum over ranks of `in`. `out` may be that part of `in`.
  void reduce_scatter(ConstElements in, Elements out, std::span<const std::int64_t> counts) {
    start_reduce_scatter(in, out, counts).wait();
  }
  /// Sends `send[r]` elements to each rank r and receives `receive[r]` from it; both lie in order of rank. No overlap.
  void all_to_all(ConstElements in, std::span<const std::int64_t> send, Elements out, std::span<const std::int64_t> receive) {
    start_all_to_all(in, send, out, receive).wait();
  }
  /// x = the root's x. Equal counts everywhere.
  void broadcast(Elements x, int root) { start_broadcast(x, root).wait(); }
  /// Messages between two ranks match in order. A send may wait until it is received.
  void send(ConstElements x, int to) { start_send(x, to).wait(); }
  void receive(Elements x, int from) { start_receive(x, from).wait(); }
  void barrier();

  /// The same calls, going on until the Pending is waited for. Counts need not outlive the start, elements do.
  [[nodiscard]] Pending start_all_reduce(Elements x, Reduce reduce = Reduce::sum);
  [[nodiscard]] Pending start_all_gather(ConstElements in, Elements out, std::span<const std::int64_t> counts);
  [[nodiscard]] Pending start_reduce_scatter(ConstElements in, Elements out, std::span<const std::int64_t> counts);
  [[nodiscard]] Pending start_all_to_all(ConstElements in, std::span<const std::int64_t> send, Elements out,
                                         std::span<const std::int64_t> receive);
  [[nodiscard]] Pending start_broadcast(Elements x, int root);
  [[nodiscard]] Pending start_send(ConstElements x, int to);
  [[nodiscard]] Pending start_receive(Elements x, int from);

  /// Ranks that give the same color become a group, in order of (key, rank); a negative color gives none (null). A collective
  /// call; the groups live independently of this one.
  std::unique_ptr<Group> split(int color, int key, const std::string& name);

  /// Ends all groups of the world: every call that waits, now or later, throws naming this rank and `cause`.
  virtual void end_all(const std::string& cause) = 0;

 protected:
  Group(std::string name, int rank, std::vector<int> members, GroupOptions options, std::shared_ptr<FlightRecorder> recorder);
  /// Starts a checked call; null when it is already done.
  virtual std::unique_ptr<Pending::Work> start(const Call& call) = 0;
  /// A group of the ranks `members` of this one, this rank being number `rank` of it. All of them call it, and only they.
  virtual std::unique_ptr<Group> make(const std::string& name, int rank, const std::vector<int>& members) = 0;

  const GroupOptions& options() const { return options_; }
  const std::shared_ptr<FlightRecorder>& shared_recorder() const { return recorder_; }
  std::vector<int> world_ranks(const std::vector<int>& members) const;
  std::uint64_t collectives() const { return collectives_; }  ///< begun so far, over all ranks alike

 private:
  Pending begin(Call call);
  std::string name_;
  int rank_;
  std::vector<int> members_;
  GroupOptions options_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::uint64_t collectives_ = 0;
  std::vector<std::uint64_t> sent_, received_;
};

}  // namespace chorus
