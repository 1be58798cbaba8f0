#include <chorus/tensor/autograd/activation_file.h>
#include <chorus/tensor/autograd/recompute.h>

#include <algorithm>

namespace chorus {
namespace {

/// A context while a part runs: what ops record belongs to it.
class Running {
 public:
  Running(Context& context, RecomputedPart* part, bool repeating)
      : context_(context), recording_(context.recording), repeating_(context.repeating) {
    context.recomputed_part = part;
    context.recording = true;
    context.repeating = repeating;
  }
  ~Running() {
    context_.recomputed_part = nullptr;
    context_.recording = recording_;
    context_.repeating = repeating_;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  Context& context_;
  bool recording_, repeating_;
};

/// The input under a node of the part's own. Ops of the part save its value, never a way to make it again, which may lie in
/// another part; and the repetition has the same first node without a way back into the graph.
Tensor entered(const Tensor& x) {
  return record("unit", x.detach(), {x}, {}, [](const Backward& b) { return Grads{b.dy}; });
}

}  // namespace

Tensor recomputed(const RecomputeOptions& options, const std::function<Tensor(Tensor)>& body, Tensor x) {
  Context& context = x.context();
  if (!context.recording || context.recomputed_part) return body(std::move(x));
  if (!context.recompute) {
    ++context.kept_whole;
    Tensor y = body(std::move(x));
    --context.kept_whole;
    return y;
  }
  return std::make_shared<RecomputedPart>(options, body, x)->first_run(std::move(x));
}

std::vector<Tensor> kept_results(Context& context, std::string_view op, const std::function<std::vector<Tensor>()>& compute) {
  return context.recomputed_part ? context.recomputed_part->results(op, compute) : compute();
}

RecomputedPart::RecomputedPart(const RecomputeOptions& options, const Body& body, const Tensor& x)
    : options_(options), body_(body), context_(x.context()), input_(x.detach()), differentiable_(x.requires_grad()) {}

RecomputedPart::~RecomputedPart() = default;

Tensor RecomputedPart::run(Tensor x) {
  const Running running(context_, this, repeating_);
  return body_(entered(std::move(x)));
}

std::vector<Tensor*> RecomputedPart::held() {
  std::vector<Tensor*> all;
  // Who wants no gradient is somebody else's, a batch's features, and stays in memory anyway.
  if (differentiable_) all.push_back(&input_);
  for (auto& results : kept_)
    for (auto& tensor : results) all.push_back(&tensor);
  return all;
}

Tensor RecomputedPart::first_run(Tensor x) {
  Tensor y = run(std::move(x));
  if (options_.file && !steps_.empty()) offloaded_ = std::make_unique<OffloadedTensors>(options_.file, context_, held());
  return y;
}

void RecomputedPart::restore() {
  if (repeating_) return;
  repeating_ = true;
  const Span span(context_.trace, "recompute");
  if (offloaded_) offloaded_->bring_back(held());
  offloaded_.reset();
  Tensor x = std::move(input_);
  input_ = {};
  if (differentiable_) {
    auto outside = std::make_shared<Node>();
    outside->shape = x.shape();
    x.set_node(std::move(outside));
  }
  run(std::move(x));
  require(next_step_ == steps_.size(), "recompute", options_.name, " recorded ", next_step_, " ops when it was repeated, but ",
          steps_.size(), " in the first run, then ", steps_[std::min(next_step_, steps_.size() - 1)].op);
  body_ = nullptr;
  kept_.clear();
  steps_.clear();
}

void RecomputedPart::recorded(const std::shared_ptr<Node>& node) {
  if (!repeating_) {
    node->saved.clear();
    node->part = shared_from_this();
    steps_.push_back({node->op, node});
    return;
  }
  const std::size_t at = next_step_++;
  require(at < steps_.size() && std::string_view(node->op) == steps_[at].op, "recompute", options_.name, " recorded ", node->op,
          " as op ", at, " when it was repeated; the first run recorded ", at < steps_.size() ? steps_[at].op : "no more");
  const auto first = steps_[at].node.lock();
  if (!first) return;
  require(first->shape == node->shape, "recompute", options_.name, " made ", node->shape, " of op ", at, ", ", node->op,
          ", when it was repeated, ", first->shape, " in the first run");
  first->saved = std::move(node->saved);
  first->remade = std::move(node->remade);
}

std::vector<Tensor> RecomputedPart::results(std::string_view op, const std::function<std::vector<Tensor>()>& compute) {
  if (std::find(options_.kept_ops.begin(), options_.kept_ops.end(), op) == options_.kept_ops.end()) return compute();
  if (!repeating_) return kept_.emplace_back(compute());
  require(next_kept_ < kept_.size(), "recompute", options_.name, " asked for more results of ", op,
          " when it was repeated than the first run's ", kept_.size());
  return std::move(kept_[next_kept_++]);
}

}  // namespace chorus
