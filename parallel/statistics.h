// Statistics of a whole step, whoever had its rows.
#pragma once
#include <chorus/nn/layers/norm.h>
#include <chorus/parallel/group/group.h>

namespace chorus {

/// Every BatchNorm of `module` in step mode sums its statistics over `group`, the ranks that share a step's rows (data and
/// context parallel ones), when `commit_statistics` is called; all its ranks call it. The group outlives the module.
template <class M>
void share_statistics(M& module, Group& group) {
  visit_fields(module, "", [&group]<class Leaf>(const std::string&, Leaf& leaf) {
    if constexpr (std::is_same_v<Leaf, StepStatistics>)
      leaf.sum.replaced = [&group](const Tensor& own) {
        const Tensor all = own.clone(Category::communication);
        group.all_reduce(all);
        return all;
      };
  });
}

}  // namespace chorus
