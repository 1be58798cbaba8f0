// Data parallelism: every rank computes gradients of its own samples, which are summed over the ranks in buckets while the
// backward pass goes on. Li et al. (2020), "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
#pragma once
#include <chorus/core/config.h>
#include <chorus/nn/materialize.h>
#include <chorus/parallel/group/group.h>

#include <span>
#include <unordered_map>

namespace chorus {

struct DdpOptions {
  std::int64_t bucket_size = 40'000'000;
  bool gradient_as_bucket_view = true, find_unused_parameters = true, overlap_grad_reduce = true;
  template <class V>
  void fields(V&& v) {
    v("bucket_size", bucket_size, "elements of gradients that are summed over ranks together", at_least(1));
    v("gradient_as_bucket_view", gradient_as_bucket_view,
      "gradients lie in the memory of their bucket; false: they are copied to it and back");
    v("find_unused_parameters", find_unused_parameters,
      "true: a parameter that no rank used in a step has gradient zero; false: that is an error");
    v("overlap_grad_reduce", overlap_grad_reduce, "sums begin during a step's last backward pass, not after it");
  }
};

/// Parameters of which each rank of another group than the data-parallel one has a part of the gradient's sum, too: those that
/// are `copy` there, as norms under sequence parallelism. Their gradients are summed in one call. Each rank of the group lists
/// the same parameters in the same order.
struct GradSum {
  Group* group = nullptr;
  std::vector<const Param*> params;
};

/// Sums the gradients of a store's trainable parameters over `group` once a step. Per step: `start_step`; for each microbatch
/// forward and `backward`; `finish_step`; then gradients are equal on all ranks, bit for bit, whatever the buckets and options
/// (with groups whose sums don't depend on where a value lies). One per store; store and group outlive it.
///
/// Leaves (a parameter, or what it is stacked in) go to buckets in reverse order of declaration, which is about the order in
/// which backward completes them. A bucket is summed when all uses of its leaves in the last backward pass have run, in order
/// of the buckets: the sequence of calls is the same on all ranks, however much of the model their samples use. A leaf of at
/// least half a bucket is one of its own and stays where it is, as does every leaf in a group of one.
class DataParallel {
 public:
  struct Bucket {
    std::vector<std::size_t> leaves;   ///< indices into ParamStore::leaves
    std::vector<std::int64_t> firsts;  ///< element at which each begins, a multiple of 64
    std::int64_t elements = 0;         ///< in all, gaps included
    bool single() const { return leaves.size() == 1; }
  };

  DataParallel(const ParamStore& store, Group& group, const DdpOptions& options = {}, std::vector<GradSum> sums = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// In place of the store's.
  void start_step();
  /// Adds to the gradients what one microbatch gives. `loss` may be empty or without a graph: a microbatch without rows.
  /// `last`: no other follows in this step. With `options.deferred`, run them with `ran` as `after`.
  void backward(const Tensor& loss, bool last, BackwardOptions options = {});
  /// After the last rule of an op whose weight gradients were put off.
  void ran(const Node& node);
  /// In place of the store's: waits for all sums. Gradients that no rank has are zero, or an error that names their parameters.
  void finish_step();

  /// In the order in which they are summed.
  std::span<const Bucket> buckets() const { return buckets_; }

 private:
  struct Running {  // of the running step, for a bucket
    Tensor memory;  // what is summed
    Pending pending;
    std::int64_t waiting = 0;  // leaves with uses to come
  };
  void lay_out(std::int64_t bucket_size);
  Tensor& memory_of(std::size_t bucket);
  void count_uses(const Tensor& loss);
  void start_ready();
  void start(std::size_t bucket);
  void finish(std::size_t bucket);
  void require_all_used();
  void sum_over(const GradSum& sum);
  std::string name_of(std::size_t leaf) const;

  const ParamStore& store_;
  const std::vector<std::shared_ptr<Node>> leaves_;
  Context& context_;
  Group& group_;
  const DdpOptions options_;
  const std::vector<GradSum> sums_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // a leaf
  std::unordered_map<const Node*, std::size_t> index_of_;

  std::vector<Running> running_;
  std::vector<std::int64_t> uses_;  // of each leaf, to come in the last backward pass
  std::vector<std::int32_t> used_;  // whether a leaf got a gradient from this rank
  std::size_t started_ = 0;         // buckets
  bool last_ = false;               // whether the last microbatch has come
};

}  // namespace chorus
