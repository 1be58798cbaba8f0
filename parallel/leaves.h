// What both kinds of data parallelism need of the leaves of a store, which they put together into buckets.
#pragma once
#include <chorus/tensor/autograd/node.h>

#include <optional>
#include <span>
#include <unordered_map>

namespace chorus {

/// Counts the uses of leaves in a backward pass, so that a bucket's gradients are known to be complete.
class LeafUses {
 public:
  /// `bucket_of`: of each leaf, by its index.
  LeafUses(std::span<const std::shared_ptr<Node>> leaves, std::vector<std::size_t> bucket_of, std::size_t buckets);
  /// Adds those of the graph under `loss`, which may be empty or without one.
  void count(const Tensor& loss);
  /// After the last rule of `node`. A leaf whose uses had all run before is given back: it got a gradient too much.
  std::optional<std::size_t> ran(const Node& node);
  /// Leaves of a bucket with uses to come.
  std::int64_t waiting(std::size_t bucket) const { return waiting_[bucket]; }
  void reset();

 private:
  std::unordered_map<const Node*, std::size_t> index_of_;
  std::vector<std::size_t> bucket_of_;
  std::vector<std::int64_t> uses_, waiting_;
};

/// Memory for the gradients of several leaves, each at its first element: what lies between them is zero, the rest unspecified.
Tensor flat_gradients(Context& context, std::span<const std::shared_ptr<Node>> leaves, std::span<const std::size_t> indices,
                      std::span<const std::int64_t> firsts, std::int64_t elements, Category category);

/// `x` in another floating type, for a sum over ranks; `x` itself where it has that.
Tensor converted(const Tensor& x, DType type);
/// Copies or adds what came of the sum to `y`, [y] of any floating type.
void take_over(const Tensor& sum, bool add, Tensor y);

}  // namespace chorus
