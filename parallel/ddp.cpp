#include <chorus/parallel/ddp.h>
#include <chorus/parallel/grad_norm.h>

#include <unordered_set>
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
      bucket_of_(leaves_.size()),
      uses_(leaves_.size()),
      used_(leaves_.size()) {
  require(options_.bucket_size > 0, "ddp", "bucket_size is ", options_.bucket_size, "; expected at least 1");
  for (const auto& sum : sums_)
    for (const auto* entry : sum.entries)
      require(entry->param->leaf != nullptr, "ddp", entry->path, " has no gradient that could be summed over ",
              sum.group->name());
  for (std::size_t i = 0; i < leaves_.size(); ++i) index_of_[leaves_[i].get()] = i;
  lay_out(group_.size() > 1 ? options_.bucket_size : 1);  // alone there is nothing to gain
  running_.resize(buckets_.size());
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

void Ddp::lay_out(std::int64_t bucket_size) {
  bool open = false;
  for (std::size_t i = leaves_.size(); i-- > 0;) {
    const std::int64_t count = leaves_[i]->shape.numel();
    // A large leaf gains nothing from company, and keeps what it may take over as its gradient: the fused loss's sum.
    const bool alone = 2 * count >= bucket_size;
    if (!open || alone || aligned(buckets_.back().elements) + count > bucket_size) buckets_.emplace_back();
    Bucket& bucket = buckets_.back();
    bucket.leaves.push_back(i);
    bucket.firsts.push_back(aligned(bucket.elements));
    bucket.elements = bucket.firsts.back() + count;
    bucket_of_[i] = buckets_.size() - 1;
    open = !alone;
  }
}

Tensor& Ddp::memory_of(std::size_t b) {
  Tensor& memory = running_[b].memory;
  if (memory) return memory;
  const Bucket& bucket = buckets_[b];
  memory = Tensor::empty(context_, {bucket.elements}, leaves_[bucket.leaves.front()]->sink.dtype, Category::gradients);
  for (std::size_t i = 0; i + 1 < bucket.leaves.size(); ++i) {
    const std::int64_t end = bucket.firsts[i] + leaves_[bucket.leaves[i]]->shape.numel();
    memory.flat_view(end, {bucket.firsts[i + 1] - end}).fill(0);
  }
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
    count_uses(loss);
    start_ready();
    options.after = [this, theirs = std::move(options.after), deferring = options.deferred != nullptr](const Node& node) {
      if (theirs) theirs(node);
      if (!deferring || !node.weight_rule) ran(node);
    };
  }
  if (loss && loss.requires_grad()) chorus::backward(loss, options);
}

void Ddp::count_uses(const Tensor& loss) {
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
        if (uses_[leaf->second]++ == 0) ++running_[bucket_of_[leaf->second]].waiting;
      }
    }
  }
}

void Ddp::ran(const Node& node) {
  if (!last_ || !options_.overlap_grad_reduce) return;
  for (const auto& input : node.inputs) {
    if (!input || !input->leaf) continue;
    const auto leaf = index_of_.find(input.get());
    if (leaf == index_of_.end()) continue;
    require(uses_[leaf->second] > 0, "ddp", name_of(leaf->second), " got a gradient from ", node.op,
            " after all its uses in the step's last backward pass");
    if (--uses_[leaf->second] == 0) --running_[bucket_of_[leaf->second]].waiting;
  }
  start_ready();
}

void Ddp::start_ready() {
  while (started_ < buckets_.size() && running_[started_].waiting == 0) start(started_++);
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
  running.pending = group_.start_all_reduce(running.memory);
}

void Ddp::finish(std::size_t b) {
  const Bucket& bucket = buckets_[b];
  Running& running = running_[b];
  running.pending.wait();
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
  std::fill(uses_.begin(), uses_.end(), 0);
  for (auto& running : running_) running.waiting = 0;
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
