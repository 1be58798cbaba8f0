// Data parallelism: every rank computes gradients of its own samples, which are summed over the ranks in buckets while the
// backward pass goes on. Li et al. (2020), "PyTorch Distributed: Experiences on Accelerating Data Parallel Training".
#pragma once
#include <chorus/core/config.h>
#include <chorus/parallel/data_parallel.h>
#include <chorus/parallel/grad_sums.h>
#include <chorus/parallel/leaves.h>

#include <span>

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

/// Every rank keeps all of the state, and gradients are summed over `group` once a step. They are equal on all ranks, bit for
/// bit, whatever the buckets and options (with groups whose sums don't depend on where a value lies). One per store; store and
/// groups outlive it.
///
/// Leaves (a parameter, or what it is stacked in) go to buckets in reverse order of declaration, which is about the order in
/// which backward completes them. A bucket is summed when all uses of its leaves in the last backward pass have run, in order
/// of the buckets: the sequence of calls is the same on all ranks, however much of the model their samples use. A leaf of at
/// least half a bucket is one of its own and stays where it is, as does every leaf in a group of one. Gradients of a unit whose
/// `reduce` is bf16 are rounded to it, summed, and rounded once more (UnitPrecision).
class Ddp final : public DataParallel {
 public:
  struct Bucket {
    std::vector<std::size_t> leaves;   ///< indices into ParamStore::leaves
    std::vector<std::int64_t> firsts;  ///< element at which each begins, a multiple of 64
    std::int64_t elements = 0;         ///< in all, gaps included
    DType reduce{};                    ///< in which they are summed
    bool single() const { return leaves.size() == 1; }
  };

  /// `model`: the ranks that hold the model together; null: this one alone. `sums`: see there.
  Ddp(const ParamStore& store, Group& group, const DdpOptions& options = {}, std::vector<GradSum> sums = {},
      Group* model = nullptr);
  ~Ddp() override;

  void start_step() override;
  /// With `options.deferred`, run them with `ran` as `after`.
  void backward(const Tensor& loss, bool last, BackwardOptions options = {}) override;
  /// After the last rule of an op whose weight gradients were put off.
  void ran(const Node& node);
  /// Without `find_unused_parameters` parameters that no rank used are an error that names them.
  void finish_step() override;
  double norm() const override;
  void free_gradients() override { store_.start_step(); }

  /// In the order in which they are summed.
  std::span<const Bucket> buckets() const { return buckets_; }

 private:
  struct Running {  // of the running step, for a bucket
    Tensor memory;  // what is summed
    Tensor sent;    // the same in the type in which it is summed
    Pending pending;
  };
  std::vector<std::size_t> lay_out(std::int64_t bucket_size);  // the bucket of each leaf
  Tensor& memory_of(std::size_t bucket);
  void start_ready();
  void start(std::size_t bucket);
  void finish(std::size_t bucket);
  void require_all_used();
  std::string name_of(std::size_t leaf) const;

  const ParamStore& store_;
  const std::vector<std::shared_ptr<Node>> leaves_;
  Context& context_;
  Group& group_;
  const DdpOptions options_;
  const std::vector<GradSum> sums_;
  Group* const model_;
  std::vector<Bucket> buckets_;

  std::vector<Running> running_;
  std::optional<LeafUses> uses_;    // in the last backward pass
  std::vector<std::int32_t> used_;  // whether a leaf got a gradient from this rank
  std::size_t started_ = 0;         // buckets
  bool last_ = false;               // whether the last microbatch has come
};

}  // namespace chorus
