#include <chorus/parallel/group/nccl/communicator.h>

#include <chrono>
#include <thread>

namespace chorus::nccl {
namespace {

using Clock = std::chrono::steady_clock;

bool over(Clock::time_point begin, double limit) { return std::chrono::duration<double>(Clock::now() - begin).count() > limit; }

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail(call, cudaGetErrorString(status));
}

Communicator::Communicator(const ncclUniqueId& id, int rank, int size, const Cuda& device, double time_limit)
    : device_(device), time_limit_(time_limit) {
  check(cudaSetDevice(device_.index), "cudaSetDevice");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaEventCreateWithFlags(&begun_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;  // a rank that never comes is met by the deadline
  settle(ncclCommInitRankConfig(&comm_, size, id, rank, &config), "ncclCommInitRankConfig");
}

Communicator::~Communicator() {
  abort();
  if (begun_) cudaEventDestroy(begun_);
  if (stream_) cudaStreamDestroy(stream_);
}

void Communicator::settle(ncclResult_t result, const char* call) {
  const auto begin = Clock::now();
  while (result == ncclInProgress) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    result = asked == ncclSuccess ? state : asked;
    if (result != ncclInProgress) break;
    if (over(begin, time_limit_)) {
      abort();
      chorus::fail(call, "not done within ", time_limit_, " s");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  if (result == ncclSuccess) return;
  const std::string reason = std::string(ncclGetErrorString(result)) + ": " + ncclGetLastError(comm_);
  abort();
  chorus::fail(call, reason);
}

void Communicator::follow_device() {
  check(cudaSetDevice(device_.index), "cudaSetDevice");
  check(cudaEventRecord(begun_, static_cast<cudaStream_t>(device_.stream)), "cudaEventRecord");
  check(cudaStreamWaitEvent(stream_, begun_, 0), "cudaStreamWaitEvent");
}

void Communicator::wait(cudaEvent_t done, const char* call) {
  const auto begin = Clock::now();
  for (;;) {
    const cudaError_t status = cudaEventQuery(done);
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) check(status, call);
    require(comm_ != nullptr, call, "the communicator has been aborted");
    ncclResult_t state = ncclSuccess;
    settle(ncclCommGetAsyncError(comm_, &state), call);
    if (state != ncclInProgress) settle(state, call);
    if (over(begin, time_limit_)) {
      abort();
      chorus::fail(call, "not done within ", time_limit_, " s");
    }
    if (over(begin, 100e-6)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void Communicator::abort() noexcept {
  if (comm_) ncclCommAbort(comm_);
  comm_ = nullptr;
}

}  // namespace chorus::nccl
