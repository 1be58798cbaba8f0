// NCCL's communicator and the streams around it, with a deadline on everything that could wait for another rank.
#pragma once
#include <chorus/parallel/group/group.h>
#include <cuda_runtime_api.h>
#include <nccl.h>

namespace chorus::nccl {

void check(cudaError_t status, const char* call);

class Communicator {
 public:
  Communicator(const ncclUniqueId& id, int rank, int size, const Cuda& device, double time_limit);
  ~Communicator();
  Communicator(const Communicator&) = delete;

  ncclComm_t get() const { return comm_; }
  cudaStream_t stream() const { return stream_; }
  const Cuda& device() const { return device_; }
  /// What NCCL answered; waits while it says that it is still at it, e.g. connecting.
  void settle(ncclResult_t result, const char* call);
  /// Lets calls that follow begin after what the device's own stream has been given so far.
  void follow_device();
  /// Until everything given to the stream by now has ended.
  void wait(cudaEvent_t done, const char* call);
  /// Ends what is going on, for this rank; peers notice by their own time limits.
  void abort() noexcept;

 private:
  Cuda device_;
  double time_limit_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begun_ = nullptr;
};

}  // namespace chorus::nccl
