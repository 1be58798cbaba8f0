#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/autograd/recompute.h>
#include <chorus/tensor/kernels/pointwise.h>
#include <chorus/tensor/layout_rules.h>

#include <algorithm>
#include <queue>

namespace chorus {

Node::~Node() {
  // Long chains must not be freed by recursion: take apart whatever only this node holds, one node after another.
  std::vector<std::shared_ptr<Node>> orphans;
  auto collect = [&orphans](Node& node) {
    for (auto& input : node.inputs)
      if (input && input.use_count() == 1) orphans.push_back(std::move(input));
  };
  collect(*this);
  while (!orphans.empty()) {
    auto node = std::move(orphans.back());
    orphans.pop_back();
    collect(*node);
  }
}

GradSink* Backward::sink(std::size_t input) const {
  const auto& node = inputs[input];
  return node && node->leaf ? &node->sink : nullptr;
}

bool wants_grad(const Inputs& inputs) {
  for (const auto& x : inputs)
    if (x && x.node() && x.context().recording) return true;
  return false;
}

bool is_remade(const Tensor& x) { return x.node() && x.node()->remake; }

Tensor remade_by_rule(Tensor y, AnyRule remake) {
  if (!y.node() || !y.context().remake) return y;
  Node& node = *y.node();
  for (const auto& remade : node.remade)
    node.remake_depth = std::max(node.remake_depth, node.inputs[remade.input]->remake_depth);
  // Dropout of a gate of a norm is worth it; without an end, a chain of cheap ops would be made again as a whole.
  constexpr int deepest = 4;
  if (++node.remake_depth <= deepest) node.remake = remake;
  return y;
}

Tensor record_rule(const char* op, Tensor y, const Inputs& inputs, Saved saved, AnyRule rule, AnyRule weight_rule) {
  if (const auto* see = y.context().see_op) (*see)(op, inputs);
  if (!y.layout()) y.set_layout(result_layout(op, inputs, y));
  if (!wants_grad(inputs)) return y;
  auto node = std::make_shared<Node>();
  node->op = op;
  node->shape = y.shape();
  node->order = y.context().next_node++;
  for (const auto& x : inputs) node->inputs.push_back(x.node());
  // A saved tensor is a value, not a way back into the graph: that is what `inputs` is for.
  for (auto& tensor : saved) {
    const auto input =
        is_remade(tensor) ? std::find(node->inputs.begin(), node->inputs.end(), tensor.node()) : node->inputs.end();
    if (input == node->inputs.end()) {
      node->saved.push_back(tensor.detach());
      continue;
    }
    node->remade.push_back({node->saved.size(), static_cast<std::size_t>(input - node->inputs.begin()), tensor.shape()});
    node->saved.emplace_back();
  }
  node->rule = rule;
  node->weight_rule = weight_rule;
  if (RecomputedPart* part = y.context().recomputed_part) part->recorded(node);
  y.set_node(std::move(node));
  return y;
}

Tensor empty_gradient(Context& context, const Shape& shape, DType dtype) {
  return Tensor::empty(context, {shape.numel()}, dtype, Category::gradients).flat_view(0, shape);
}

Tensor& GradSink::in(Context& context, const Shape& shape) {
  if (!grad) grad = memory ? memory() : empty_gradient(context, shape, dtype);
  return grad;
}

void make_leaf(Tensor& value, Tensor grad) {
  require(!grad || (grad.shape() == value.shape() && grad.dtype() == wide(value.dtype())), "make_leaf", "gradient is ", grad,
          " for ", value);
  auto node = std::make_shared<Node>();
  node->op = "leaf";
  node->leaf = true;
  node->shape = value.shape();
  node->sink.grad = std::move(grad);
  node->sink.dtype = wide(value.dtype());
  value.set_node(std::move(node));
}

namespace {
void accumulate(const Tensor& g, bool add, Tensor& sum) {
  std::visit([&](auto device) { kernel::accumulate(device, g, add, sum); }, g.context().device);
}
}  // namespace

void add_to_sink(Node& leaf, const Tensor& g) {
  require(g.shape() == leaf.shape, "gradient", g, " for a parameter of shape ", leaf.shape);
  accumulate(g, leaf.sink.written, leaf.sink.in(g.context(), leaf.shape));
  leaf.sink.written = true;
}

namespace {

void deliver(Node& to, Tensor g) {
  require(g.numel() == to.shape.numel(), to.op, "gradient ", g, " for an output of shape ", to.shape);
  g = g.reshaped(to.shape);
  if (to.leaf) {
    add_to_sink(to, g);
  } else if (!to.grad) {
    to.grad = std::move(g);
  } else if (to.grad.unshared()) {
    accumulate(g, true, to.grad);
  } else {
    Tensor total = to.grad.clone();
    accumulate(g, true, total);
    to.grad = std::move(total);
  }
}

void deliver_all(const Node& node, Grads grads) {
  require(grads.size() == node.inputs.size(), node.op, "rule gave ", grads.size(), " gradients for ", node.inputs.size(),
          " inputs");
  for (std::size_t i = 0; i < grads.size(); ++i)
    if (grads[i] && node.inputs[i]) deliver(*node.inputs[i], std::move(grads[i]));
}

/// The makers come earlier in the graph, so what they saved is still there, or can be had.
void remake_saved(Node& node) {
  if (node.part) node.part->restore();
  for (const auto& [saved, input, shape] : node.remade) {
    Node& maker = *node.inputs[input];
    remake_saved(maker);
    node.saved[saved] = maker.remake(Backward{maker.saved, {}, maker.inputs}).front().reshaped(shape);
  }
  node.remade.clear();
}

void run_rule(const AnyRule& rule, const Node& node, const Tensor& dy) {
  deliver_all(node, rule(Backward{node.saved, dy, node.inputs}));
}

}  // namespace

void backward(const Tensor& y, const BackwardOptions& options) {
  require(y.node() != nullptr, "backward", "nothing was recorded for ", y);
  NoGrad quiet(y.context());
  Tensor seed = options.cotangent;
  if (seed) {
    require(seed.shape() == y.shape() && seed.dtype() == y.dtype(), "backward", "cotangent ", seed, " for ", y);
  } else {
    seed = Tensor::full(y.context(), y.shape(), y.dtype(), 1.0);
  }
  const auto earlier = [](const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) { return a->order < b->order; };
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, decltype(earlier)> ready(earlier);
  const auto reach = [&ready](const std::shared_ptr<Node>& node, Tensor g) {
    const bool known = node->leaf || static_cast<bool>(node->grad);
    deliver(*node, std::move(g));
    if (!known) ready.push(node);
  };
  reach(y.node(), std::move(seed));
  while (!ready.empty()) {
    const auto node = ready.top();
    ready.pop();
    const Tensor dy = std::move(node->grad);
    node->grad = Tensor();
    require(static_cast<bool>(node->rule), node->op, "the graph was walked already: saved tensors are gone");
    const Span span(dy.context().trace, node->op);
    remake_saved(*node);
    Grads grads = node->underway ? node->underway->arrive() : node->rule(Backward{node->saved, dy, node->inputs});
    node->underway.reset();
    require(grads.size() == node->inputs.size(), node->op, "rule gave ", grads.size(), " gradients for ", node->inputs.size(),
            " inputs");
    for (std::size_t i = 0; i < grads.size(); ++i)
      if (grads[i] && node->inputs[i]) reach(node->inputs[i], std::move(grads[i]));
    node->rule = {};
    const bool put_off = node->weight_rule && options.deferred;
    if (put_off) {
      options.deferred->add(node, dy);
    } else if (node->weight_rule) {
      // The next node's gradient is complete: what could add to it has a higher number.
      if (!ready.empty() && ready.top()->begin && !ready.top()->underway) {
        Node& next = *ready.top();
        next.underway = next.begin(next.grad);
      }
      run_rule(node->weight_rule, *node, dy);
    }
    if (options.after) options.after(*node);
    if (put_off) continue;
    node->saved.clear();
    node->inputs.clear();
  }
}

void DeferredGrads::run(const std::function<void(const Node&)>& after) {
  for (auto& [node, dy] : work_) {
    NoGrad quiet(dy.context());
    const Span span(dy.context().trace, node->op);
    run_rule(node->weight_rule, *node, dy);
    if (after) after(*node);
    node->saved.clear();
    node->inputs.clear();
  }
  work_.clear();
}

}  // namespace chorus
