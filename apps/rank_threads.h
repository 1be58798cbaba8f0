// How many OpenMP threads a rank computes with.
#pragma once
#include <chorus/parallel/group/group.h>
#include <omp.h>

namespace chorus {

/// The cores that this process may use, shared equally among the ranks that are on this machine; at least 1.
int threads_of_a_rank(const Group& world);

/// Sets the calling thread's OpenMP width for its lifetime.
class Threads {
 public:
  explicit Threads(int count) : before_(omp_get_max_threads()) { omp_set_num_threads(count); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace chorus
