// Linked where there is no NCCL.
#include <chorus/parallel/group/nccl.h>

namespace chorus {

bool nccl_built() { return false; }

std::unique_ptr<Group> nccl_group(Group&, const Cuda&, const GroupOptions&) {
  fail("nccl_group", "this build has no NCCL; configure it with -DCHORUS_CUDA=ON -DCHORUS_NCCL=ON and NCCL 2.18 or newer");
}

}  // namespace chorus
