#include <chorus/parallel/ddp.h>
#include <chorus/parallel/grad_norm.h>

#include <utility>

namespace chorus {
namespace {

constexpr std::int64_t alignment = 64;  // elements: whole cache lines for every type
constexpr const char* span_name = "all_reduce gradients";

std::int64_t aligned(std::int64_t n) { return (n + alignment - 1) / alignment * alignment; }

}  // namespace

Ddp::Ddp(const ParamStore& store, Group& group, const DdpOptions& options, std::vector<GradSum> sums, Group* model)
    : store_(store),
      leaves_(store.leaves),
      context_(*store.context),
      group_(group),
      options_(options),
      sums_(std::move(sums)),
      model_(model),
      used_(leaves_.size()) {
  require(options_.bucket_size > 0, "ddp", "bucket_size is ", options_.bucket_size, "; expected at least 1");
  for (const auto& sum : sums_)
    for (const auto* entry : sum.entries)
      require(entry->param->leaf != nullptr, "ddp", entry->path, " has no gradient that could be summed over ",
              sum.group->name());
  std::vector<std::size_t> bucket_of = lay_out(group_.size() > 1 ? options_.bucket_size : 1);  // alone there is nothing to gain
  running_.resize(buckets_.size());
  uses_.emplace(leaves_, std::move(bucket_of), buckets_.size());
  if (!options_.gradient_as_bucket_view) return;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const Bucket& bucket = buckets_[b];
    if (bucket.single()) continue;
    for (std::size_t i = 0; i < bucket.leaves.size(); ++i) {
      Node& leaf = *leaves_[bucket.leaves[i]];
      leaf.sink.memory = [this, b, first = bucket.firsts[i], shape = leaf.shape] {
        return memory_of(b).flat_view(first, shape);
      };
    }
  }
}

Ddp::~Ddp() {
  for (const auto& leaf : leaves_) leaf->sink.memory = nullptr;
}

std::vector<std::size_t> Ddp::lay_out(std::int64_t bucket_size) {
  std::vector<std::size_t> bucket_of(leaves_.size());
  bool open = false;
  for (std::size_t i = leaves_.size(); i-- > 0;) {
    const std::int64_t count = leaves_[i]->shape.numel();
    // A large leaf gains nothing from company, and keeps what it may take over as its gradient: the fused loss's sum.
    const bool alone = 2 * count >= bucket_size;
    const DType reduce = group_.size() > 1 ? store_.leaf_reduces[i] : store_.wide;
    if (!open || alone || buckets_.back().reduce != reduce || aligned(buckets_.back().elements) + count > bucket_size)
      buckets_.emplace_back().reduce = reduce;
    Bucket& bucket = buckets_.back();
    bucket.leaves.push_back(i);
    bucket.firsts.push_back(aligned(bucket.elements));
    bucket.elements = bucket.firsts.back() + count;
    bucket_of[i] = buckets_.size() - 1;
    open = !alone;
  }
  return bucket_of;
}

Tensor& Ddp::memory_of(std::size_t b) {
  Tensor& memory = running_[b].memory;
  if (memory) return memory;
  const Bucket& bucket = buckets_[b];
  memory = flat_gradients(context_, leaves_, bucket.leaves, bucket.firsts, bucket.elements, Category::gradients);
  return memory;
}

void Ddp::start_step() {
  require(started_ == 0, "ddp", "a step starts before finish_step of the one before");
  store_.start_step();
  for (auto& running : running_) running.memory = {};
  last_ = false;
}

void Ddp::backward(const Tensor& loss, bool last, BackwardOptions options) {
  require(!last_, "ddp", "a microbatch after the last one of the step");
  last_ = last;
  const bool watched = last && options_.overlap_grad_reduce;
  if (watched) {
    uses_->count(loss);
    start_ready();
    options.after = [this, theirs = std::move(options.after), deferring = options.deferred != nullptr](const Node& node) {
      if (theirs) theirs(node);
      if (!deferring || !node.weight_rule) ran(node);
    };
  }
  if (loss && loss.requires_grad()) chorus::backward(loss, options);
}

void Ddp::ran(const Node& node) {
  if (!last_ || !options_.overlap_grad_reduce) return;
  if (const auto unexpected = uses_->ran(node))
    fail("ddp", name_of(*unexpected), " got a gradient from ", node.op, " after all its uses in the step's last backward pass");
  start_ready();
}

void Ddp::start_ready() {
  while (started_ < buckets_.size() && uses_->waiting(started_) == 0) start(started_++);
}

void Ddp::start(std::size_t b) {
  const Span span(context_.trace, span_name);
  const Bucket& bucket = buckets_[b];
  Running& running = running_[b];
  for (const auto i : bucket.leaves) {
    GradSink& sink = leaves_[i]->sink;
    used_[i] = sink.written;
    if (!sink.written) sink.in(context_, leaves_[i]->shape).fill(0);
    sink.written = true;
  }
  if (bucket.single()) {
    running.memory = leaves_[bucket.leaves.front()]->sink.grad;
  } else if (!options_.gradient_as_bucket_view) {
    Tensor& memory = memory_of(b);
    for (std::size_t i = 0; i < bucket.leaves.size(); ++i) {
      const Node& leaf = *leaves_[bucket.leaves[i]];
      memory.flat_view(bucket.firsts[i], leaf.shape).copy_from(leaf.sink.grad);
    }
  }
  running.sent = converted(running.memory, bucket.reduce);
  running.pending = group_.start_all_reduce(running.sent);
}

void Ddp::finish(std::size_t b) {
  const Bucket& bucket = buckets_[b];
  Running& running = running_[b];
  running.pending.wait();
  if (running.sent.dtype() != running.memory.dtype()) take_over(running.sent, false, running.memory);
  running.sent = {};
  if (!bucket.single() && !options_.gradient_as_bucket_view) {
    for (std::size_t i = 0; i < bucket.leaves.size(); ++i) {
      const Node& leaf = *leaves_[bucket.leaves[i]];
      leaf.sink.grad.copy_from(running.memory.flat_view(bucket.firsts[i], leaf.shape));
    }
  }
  running.memory = {};  // its views keep it for as long as the store does
}

void Ddp::finish_step() {
  while (started_ < buckets_.size()) start(started_++);
  {
    const Span span(context_.trace, span_name);
    for (std::size_t b = 0; b < buckets_.size(); ++b) finish(b);
  }
  uses_->reset();
  started_ = 0;
  last_ = false;
  if (!options_.find_unused_parameters) require_all_used();
  for (const auto& sum : sums_) sum_gradients(store_, sum);
}

double Ddp::norm() const {
  Group* const groups[] = {model_};
  return grad_norm(store_, model_ ? std::span<Group* const>(groups) : std::span<Group* const>());
}

void Ddp::require_all_used() {
  group_.all_reduce(std::span<std::int32_t>(used_), Reduce::max);
  std::string unused;
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (used_[i] == 0) unused += (unused.empty() ? "" : ", ") + name_of(i);
  require(unused.empty(), "ddp", "no rank used these parameters in this step: ", unused,
          "; freeze them, or set find_unused_parameters = true");
}

std::string Ddp::name_of(std::size_t leaf) const {
  std::string name;
  for (const auto& entry : store_.trainable)
    if (entry.param->leaf == leaves_[leaf]) name += (name.empty() ? "" : ", ") + entry.path;
  return name;
}

}  // namespace chorus
