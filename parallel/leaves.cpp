#include <chorus/parallel/leaves.h>
#include <chorus/tensor/kernels/pointwise.h>

#include <algorithm>
#include <unordered_set>

namespace chorus {

LeafUses::LeafUses(std::span<const std::shared_ptr<Node>> leaves, std::vector<std::size_t> bucket_of, std::size_t buckets)
    : bucket_of_(std::move(bucket_of)), uses_(leaves.size()), waiting_(buckets) {
  for (std::size_t i = 0; i < leaves.size(); ++i) index_of_[leaves[i].get()] = i;
}

void LeafUses::count(const Tensor& loss) {
  std::vector<const Node*> open;
  std::unordered_set<const Node*> seen;
  if (loss && loss.node()) open.push_back(loss.node().get());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const auto& input : node->inputs) {
      if (!input) continue;
      if (!input->leaf) {
        if (seen.insert(input.get()).second) open.push_back(input.get());
      } else if (const auto leaf = index_of_.find(input.get()); leaf != index_of_.end()) {
        if (uses_[leaf->second]++ == 0) ++waiting_[bucket_of_[leaf->second]];
      }
    }
  }
}

std::optional<std::size_t> LeafUses::ran(const Node& node) {
  for (const auto& input : node.inputs) {
    if (!input || !input->leaf) continue;
    const auto leaf = index_of_.find(input.get());
    if (leaf == index_of_.end()) continue;
    if (uses_[leaf->second] == 0) return leaf->second;
    if (--uses_[leaf->second] == 0) --waiting_[bucket_of_[leaf->second]];
  }
  return std::nullopt;
}

void LeafUses::reset() {
  std::fill(uses_.begin(), uses_.end(), 0);
  std::fill(waiting_.begin(), waiting_.end(), 0);
}

Tensor flat_gradients(Context& context, std::span<const std::shared_ptr<Node>> leaves, std::span<const std::size_t> indices,
                      std::span<const std::int64_t> firsts, std::int64_t elements, Category category) {
  const Tensor memory = Tensor::empty(context, {elements}, leaves[indices.front()]->sink.dtype, category);
  for (std::size_t i = 0; i + 1 < indices.size(); ++i) {
    const std::int64_t end = firsts[i] + leaves[indices[i]]->shape.numel();
    memory.flat_view(end, {firsts[i + 1] - end}).fill(0);
  }
  return memory;
}

void take_over(const Tensor& sum, bool add, Tensor y) {
  std::visit([&](auto device) { kernel::accumulate(device, sum, add, y); }, y.context().device);
}

Tensor converted(const Tensor& x, DType type) {
  if (x.dtype() == type) return x;
  const Tensor y = Tensor::empty(x.context(), x.shape(), type, Category::communication);
  take_over(x, false, y);
  return y;
}

}  // namespace chorus
