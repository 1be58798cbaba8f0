#include <chorus/parallel/group/mpi/engine.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <thread>

namespace chorus::mpi {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int failure_tag = 1;
constexpr std::size_t failure_bytes = 2048;
constexpr auto farewell = std::chrono::milliseconds(100);  // what a failing rank gives its last messages

/// Until all have ended or the time is over; those that haven't are left to MPI.
void settle(std::vector<MPI_Request>& requests) {
  const auto begin = Clock::now();
  int done = 0;
  while (!done && Clock::now() - begin < farewell) {
    if (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) break;
    if (!done) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  for (auto& request : requests)
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  requests.clear();
}

}  // namespace

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  chorus::fail(call, std::string(text, static_cast<std::size_t>(length)));
}

Engine::Engine(const MpiOptions& given, MPI_Comm communicator, bool finalizes) : options(given), finalizes_(finalizes) {
  require(options.chunk_bytes >= 8 && options.chunk_bytes <= 0x7fffffff, "mpi_group", "chunk_bytes is ", options.chunk_bytes,
          "; it takes 8 to 2^31 - 1");
  check(MPI_Comm_dup(communicator, &world_), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(world_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_dup(world_, &control_), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(control_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check(MPI_Comm_rank(world_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(world_, &size_), "MPI_Comm_size");
  recorder_ = std::make_shared<FlightRecorder>(rank_, options.recorded_calls);
  MPI_Comm node = MPI_COMM_NULL;
  int neighbours = 1;
  check(MPI_Comm_split_type(world_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
  check(MPI_Comm_size(node, &neighbours), "MPI_Comm_size");
  check(MPI_Comm_free(&node), "MPI_Comm_free");
  spins_ = neighbours <= sysconf(_SC_NPROCESSORS_ONLN);  // of the machine: a rank that is bound to a core sees only that
  heard_.resize(failure_bytes);
  check(MPI_Irecv(heard_.data(), failure_bytes, MPI_CHAR, MPI_ANY_SOURCE, failure_tag, control_, &hearing_), "MPI_Irecv");
}

Engine::~Engine() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  if (hearing_ != MPI_REQUEST_NULL) {
    MPI_Cancel(&hearing_);
    MPI_Wait(&hearing_, MPI_STATUS_IGNORE);
  }
  if (failed()) {
    // MPI may still read and write these, so they stay for ever.
    abandoned_.push_back(std::make_shared<std::vector<char>>(std::move(told_)));
    static_cast<void>(new auto(std::move(abandoned_)));
    return;
  }
  MPI_Comm_free(&control_);
  MPI_Comm_free(&world_);
  if (finalizes_) MPI_Finalize();
}

Scratch Engine::take(std::size_t bytes) {
  const auto fits = std::ranges::find_if(scratch_, [&](const Scratch& s) { return s.bytes >= bytes; });
  if (fits == scratch_.end()) return {std::make_unique_for_overwrite<char[]>(bytes), bytes};
  Scratch result = std::move(*fits);
  scratch_.erase(fits);
  return result;
}

void Engine::look_for_failures() {
  if (failed()) return;
  int arrived = 0;
  MPI_Status status;
  check(MPI_Test(&hearing_, &arrived, &status), "MPI_Test");
  if (!arrived) return;
  int bytes = 0;
  MPI_Get_count(&status, MPI_CHAR, &bytes);
  cause_.assign(heard_.data(), static_cast<std::size_t>(std::max(bytes, 0)));
  if (cause_.empty()) cause_ = "rank " + std::to_string(status.MPI_SOURCE) + " failed";
  if (!options.record_folder.empty()) recorder_->write(options.record_folder);
}

void Engine::fail(const std::string& cause) {
  if (failed()) return;
  cause_ = cause.substr(0, failure_bytes);
  told_.assign(cause_.begin(), cause_.end());
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Isend(told_.data(), static_cast<int>(told_.size()), MPI_CHAR, r, failure_tag, control_, &request);
    if (code == MPI_SUCCESS) telling_.push_back(request);
  }
  settle(telling_);
  if (options.record_folder.empty()) return;
  try {
    recorder_->write(options.record_folder);
  } catch (const std::exception& e) {
    cause_ += std::string("; the last calls could not be written: ") + e.what();
  }
}

void Engine::stop(const std::string& what) {
  throw GroupEnded(error_text("group", "rank ", rank_, " was stopped in ", what, ": ", cause_));
}

bool Engine::poll(const Operation* current) {
  bool moved = false;
  for (Operation* call : active_) {  // progress neither adds nor removes any
    try {
      moved |= call->progress();
    } catch (const std::exception& e) {
      fail("rank " + std::to_string(rank_) + " in " + call->describe() + ": " + e.what());
    }
    if (failed()) break;
  }
  std::erase_if(active_, [](Operation* call) { return call->done(); });
  const bool finished = current && current->done();
  if (!finished && ++polls_ % 16 == 0) look_for_failures();
  return moved;
}

void Engine::wait(Operation& operation) {
  auto last_news = Clock::now(), last_busy = last_news;
  auto pause = std::chrono::microseconds(1);
  while (!operation.done()) {
    const auto before = Clock::now();
    const bool moved = poll(&operation);
    if (operation.done()) return;
    if (failed()) stop(operation.describe());
    const auto now = Clock::now();
    if (moved) last_news = now;
    // A long poll was one that copied data, or that had to let another process go first.
    if (moved || now - before > std::chrono::microseconds(10)) {
      last_busy = now;
      pause = std::chrono::microseconds(1);
    }
    const double silent = std::chrono::duration<double>(now - last_news).count();
    if (silent > options.time_limit) {
      look_for_failures();
      std::ostringstream text;
      text << "rank " << rank_ << " waited for " << options.time_limit << " s in " << operation.describe() << " for "
           << operation.waits_for();
      fail(text.str());
      stop(operation.describe());
    }
    if (std::chrono::duration<double>(now - last_busy).count() < (spins_ ? options.spin_seconds : 0)) continue;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::microseconds(100));
    if (silent > 1e-3) look_for_failures();
  }
}

void Engine::drop(Operation& operation) noexcept {
  std::erase(active_, &operation);
  if (operation.done()) return;
  try {
    if (!failed())
      fail("rank " + std::to_string(rank_) + " left " + operation.describe() + " unfinished, because of an exception");
    std::vector<MPI_Request> requests;
    operation.release(requests, abandoned_);
    settle(requests);
  } catch (...) {  // nothing more can be done for it
  }
}

}  // namespace chorus::mpi
