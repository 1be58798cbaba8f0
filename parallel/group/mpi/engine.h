// What the groups of one process share over MPI: the communicator that failures are told on, the calls in flight, and waiting.
#pragma once
#include <chorus/parallel/group/mpi.h>
#include <mpi.h>

#include <chrono>

namespace chorus::mpi {

/// Throws an Error naming the call and what MPI says about `code`.
void check(int code, const char* call);

/// Memory that is not cleared, since it is written before it is read.
struct Scratch {
  std::unique_ptr<char[]> data;
  std::size_t bytes = 0;
};

/// A call in flight: a few sets of requests that are tested until each has ended.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual bool progress() = 0;  ///< tests what goes on, begins what can; whether anything ended
  virtual bool done() const = 0;
  virtual std::string describe() const = 0;
  virtual std::string waits_for() const = 0;  ///< "a message from rank 2"
  /// Requests and memory that MPI may still use; the call is given up.
  virtual void release(std::vector<MPI_Request>& requests, std::vector<std::shared_ptr<void>>& memory) = 0;
};

class Engine {
 public:
  Engine(const MpiOptions& options, MPI_Comm communicator, bool finalizes);
  ~Engine();
  Engine(const Engine&) = delete;

  const MpiOptions options;
  MPI_Comm world() const { return world_; }
  int rank() const { return rank_; }
  const std::shared_ptr<FlightRecorder>& recorder() const { return recorder_; }

  /// Memory for what others give to a reduction; kept for later ones, whose pages are then there.
  Scratch take(std::size_t bytes);
  void give_back(Scratch scratch) { scratch_.push_back(std::move(scratch)); }

  void add(Operation& operation) { active_.push_back(&operation); }
  /// Until it is done; other calls in flight go on meanwhile.
  void wait(Operation& operation);
  /// Gives a call up without waiting for others.
  void drop(Operation& operation) noexcept;
  /// Advances all calls in flight and looks now and then whether somebody has failed. Whether anything moved.
  bool poll(const Operation* current);

  bool failed() const { return !cause_.empty(); }
  const std::string& cause() const { return cause_; }
  /// Tells all ranks, unless one of them told before, and writes the flight recorder.
  void fail(const std::string& cause);
  /// Throws what has ended the group, in the name of `what`.
  [[noreturn]] void stop(const std::string& what);

 private:
  void look_for_failures();

  MPI_Comm world_ = MPI_COMM_NULL, control_ = MPI_COMM_NULL;
  bool finalizes_, spins_ = true;
  int rank_ = 0, size_ = 1;
  std::shared_ptr<FlightRecorder> recorder_;
  std::vector<Operation*> active_;
  std::string cause_;
  std::uint64_t polls_ = 0;
  std::vector<char> heard_, told_;
  MPI_Request hearing_ = MPI_REQUEST_NULL;
  std::vector<MPI_Request> telling_;
  std::vector<std::shared_ptr<void>> abandoned_;
  std::vector<Scratch> scratch_;
};

}  // namespace chorus::mpi
