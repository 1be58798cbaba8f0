// Statistics of a whole step, whoever had its rows.
#pragma once
#include <chorus/nn/layers/norm.h>
#include <chorus/parallel/group/group.h>

namespace chorus {

/// `statistics` are summed over `group`, the ranks that share a step's rows, when `commit_statistics` is called; all its ranks
/// call it. The group outlives the module.
inline void share_statistics(StepStatistics& statistics, Group& group) {
  statistics.sum.replaced = [&group](const Tensor& own) {
    const Tensor all = own.clone(Category::communication);
    group.all_reduce(all);
    return all;
  };
}

}  // namespace chorus
