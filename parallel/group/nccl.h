// Ranks as GPUs, over NCCL. Builds without it have the same functions, which say so. Compiled and linked, but not yet run.
#pragma once
#include <chorus/parallel/group/group.h>

namespace chorus {

bool nccl_built();

/// A group of the same ranks as `host` (threads or processes, over which NCCL's identifier travels), each with a device of its
/// own. Calls on device memory go over NCCL, after what the device's stream has been given; a wait lasts until they have ended
/// on the device, looks for NCCL's errors meanwhile and keeps the time limit. Calls on host memory, `split` and `barrier` go
/// over a group split from `host`. NCCL chooses the order of sums, rounds bf16 as it goes, and says nothing about NaN in
/// maxima.
std::unique_ptr<Group> nccl_group(Group& host, const Cuda& device, const GroupOptions& options);

}  // namespace chorus
