// One collective call or message between processes: pairs exchange parts, sums are made in order of rank. Blocking calls and
// those in flight take this one way.
#pragma once
#include <chorus/parallel/group/mpi/engine.h>

#include <array>

namespace chorus::mpi {

/// What a message is labelled with: which call, which step of it, and a hash of what is called, so that ranks whose calls
/// differ don't take each other's data; that they differ is told by their signatures.
class Tags {
 public:
  Tags(int upper_bound, std::uint64_t sequence, std::uint64_t hash, bool message);
  int signature() const { return signature_; }
  /// `count`: elements that one gives another in all_to_all, where only these two must agree on them.
  int data(int lane, bool results, std::int64_t count = 0) const;
  static constexpr int lanes = 4;
  /// How many calls of one kind may be in flight before their labels repeat.
  static std::uint64_t most_in_flight(int upper_bound);

 private:
  int signature_, data_, hash_shift_, hash_mask_;
  std::uint64_t hash_;
};

/// What neighbours compare.
struct Signature {
  static constexpr std::size_t listed = 16;
  std::uint64_t sequence = 0;
  Op op = Op::barrier;
  Reduce reduce = Reduce::sum;
  DType dtype = DType::f32;
  int peer = -1;
  std::int64_t count = 0, between = 0;  // between: elements that the sender gives the receiver in all_to_all
  std::uint64_t parts = 0;              // hash of all counts
  std::int64_t parts_given = 0;
  std::array<std::int64_t, listed> part{};  // the first of them, for messages

  explicit Signature(const Call& call);
  Signature() = default;
  std::uint64_t hash() const;  ///< of what must agree
  std::string describe() const;
};

class Exchange final : public Operation {
 public:
  /// `name` and `members` (ranks in the world) are for messages.
  Exchange(Engine& engine, MPI_Comm communicator, int tag_bound, const Call& call, int rank, const std::vector<int>& members,
           const std::string& name);

  bool progress() override;
  bool done() const override { return done_; }
  std::string describe() const override;
  std::string waits_for() const override;
  void release(std::vector<MPI_Request>& requests, std::vector<std::shared_ptr<void>>& memory) override;

 private:
  enum class Step { idle, parts, results };
  struct Lane {  // one of a few rounds that go on side by side
    Step step = Step::idle;
    std::int64_t round = 0;  // lane l does rounds l, l + lanes ...
    std::vector<MPI_Request> requests;
    std::vector<int> peers;           // whose request; -1 - peer for one that sends
    std::vector<std::int64_t> bytes;  // that it must bring
    std::size_t ended = 0;            // so many of the first requests have ended
    Scratch scratch;                  // what others give to a reduction, in order of rank
  };
  struct Part {
    std::int64_t begin = 0, count = 0;  // elements
  };

  void set_parts(const Call& call);
  void greet();
  void finish_greeting();
  bool agrees(const Signature& other, int from) const;
  void begin_round(int lane);
  void end_step(int lane);
  bool test(Lane& lane);
  void add(Lane& lane, std::int64_t own_begin, std::int64_t out_begin, std::int64_t count);
  Part chunk(Part whole, std::int64_t round) const;
  Part slice(std::int64_t round, int rank) const;
  void send(Lane& lane, int to, const void* data, std::int64_t bytes, int tag);
  void receive(Lane& lane, int from, void* data, std::int64_t bytes, int tag);
  const char* in(std::int64_t element) const { return static_cast<const char*>(in_.data) + element * bytes_; }
  char* out(std::int64_t element) const { return static_cast<char*>(out_.data) + element * bytes_; }
  char* scratch(Lane& lane, int rank) const { return lane.scratch.data.get() + rank * stride_; }
  bool reduces() const { return op_ == Op::all_reduce || op_ == Op::reduce_scatter || op_ == Op::barrier; }
  std::string who(int rank) const;

  Engine& engine_;
  const MPI_Comm communicator_;
  const std::string group_;
  const int rank_, size_;
  const std::vector<int> members_;
  const Op op_;
  const Reduce reduce_;
  const DType dtype_;
  const std::int64_t bytes_;  // of an element
  const int peer_;
  const ConstElements in_;
  const Elements out_;
  std::vector<Part> send_, receive_;  // by rank: of in and, unless it is reduced, of out
  Signature own_;
  Tags tags_;
  std::vector<Signature> told_, heard_;
  Lane greeting_;
  bool greeted_ = false, refused_ = false, two_steps_ = false, done_ = false;
  // Elements of a message at most; steps of the call; bytes between what two ranks give in scratch memory.
  std::int64_t chunk_ = 1, rounds_ = 0, stride_ = 0;
  std::array<Lane, Tags::lanes> lanes_;
};

}  // namespace chorus::mpi
