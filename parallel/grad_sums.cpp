#include <chorus/parallel/grad_sums.h>

#include <algorithm>

namespace chorus {

std::vector<GradSum> grad_sums(const ParamStore& store, const Mesh& mesh) {
  std::vector<GradSum> out;
  for (const auto& entry : store.trainable) {
    for (const auto& at : entry.param->layout) {
      if (at.placement != placement::copy) continue;
      Group* group = mesh.axis(at.axis).group;
      auto known = std::find_if(out.begin(), out.end(), [&](const auto& sum) { return sum.group == group; });
      if (known == out.end()) known = out.insert(out.end(), {group, {}});
      known->entries.push_back(&entry);
    }
  }
  return out;
}

void sum_gradients(const ParamStore& store, const GradSum& sum) {
  std::int64_t count = 0;
  for (const auto* entry : sum.entries) count += entry->count;
  if (sum.group->size() == 1 || count == 0) return;
  Context& context = *store.context;
  const Span span(context.trace, "all_reduce gradients");
  const Tensor together = Tensor::empty(context, {count}, store.wide, Category::communication);
  const auto each = [&](const auto& copy) {
    std::int64_t first = 0;
    for (const auto* entry : sum.entries) {
      const Tensor grad = store.gradient(*entry);
      copy(grad, together.flat_view(first, grad.shape()));
      first += grad.numel();
    }
  };
  each([](const Tensor& grad, const Tensor& place) { place.copy_from(grad); });
  sum.group->all_reduce(together);
  each([](const Tensor& grad, const Tensor& place) { grad.copy_from(place); });
}

}  // namespace chorus
