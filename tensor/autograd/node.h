// Reverse-mode differentiation. An op computes its value, then `record`s what it read, what it saved and its rule.
#pragma once
#include <chorus/tensor/tensor.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace chorus {

using Saved = std::vector<Tensor>;   ///< tensors a rule needs; visible, so that recompute and offload can reach them
using Inputs = std::vector<Tensor>;  ///< in the order in which the rule returns gradients
using Grads = std::vector<Tensor>;   ///< one per input; an empty tensor where none is needed or it was written to the sink

/// Where the gradient of a leaf is summed. Products write into it directly: first `accumulate` is false, then true.
struct GradSink {
  Tensor grad;                       ///< of the value's shape; empty until the first gradient arrives
  DType dtype{};                     ///< of grad: wide(dtype of the value)
  bool written = false;              ///< whether this step has put something there already
  std::function<Tensor()> memory{};  ///< gives `grad` its memory, of the value's shape; empty: memory of its own
  /// `grad`, given memory if it has none; its values are unspecified unless `written`.
  Tensor& in(Context& context, const Shape& shape);
};

/// What a rule gets to see.
struct Backward {
  const Saved& saved;
  const Tensor& dy;
  const std::vector<std::shared_ptr<Node>>& inputs;

  bool needs(std::size_t input) const { return inputs[input] != nullptr; }
  /// The sink of input i when that is a leaf, else null. A rule that writes there sets `written` and returns no gradient.
  GradSink* sink(std::size_t input) const;
};

/// A rule captures plain numbers only. Tensors go through Saved: a lambda that captures one is not trivially copyable.
template <class F>
concept Rule = std::is_trivially_copyable_v<F> && std::is_invocable_r_v<Grads, const F&, const Backward&>;

/// A stored rule: copies of the captured numbers and a function pointer.
class AnyRule {
 public:
  AnyRule() = default;
  template <Rule F>
  explicit AnyRule(const F& rule) {
    static_assert(sizeof(F) <= sizeof(bytes_), "a rule captures at most 128 bytes");
    ::new (static_cast<void*>(bytes_)) F(rule);
    call_ = [](const void* f, const Backward& b) { return (*static_cast<const F*>(f))(b); };
  }
  explicit operator bool() const { return call_ != nullptr; }
  Grads operator()(const Backward& b) const { return call_(bytes_, b); }

 private:
  alignas(16) std::byte bytes_[128];
  Grads (*call_)(const void*, const Backward&) = nullptr;
};

/// A saved tensor that is made again instead of kept.
struct Remade {
  std::size_t saved = 0, input = 0;  ///< the input whose node makes it
  Shape shape;
};

class RecomputedPart;

/// Gradients that others help to make, while this rank goes on with something else.
struct Underway {
  virtual ~Underway() = default;
  virtual Grads arrive() = 0;  ///< waits for them
};

struct Node {
  const char* op = "";
  std::uint64_t order = 0;                    ///< creation number; backward runs in falling order
  std::vector<std::shared_ptr<Node>> inputs;  ///< null where no gradient is wanted
  Saved saved;
  AnyRule rule;         ///< gradients of all inputs, or of all but the deferrable ones
  AnyRule weight_rule;  ///< gradients that may be asked for later: those of leaves, written to their sinks
  AnyRule remake;       ///< gives the output once more, from `saved`; empty where that costs more than keeping it
  std::vector<Remade> remade;
  /// Begins what `rule` does, of an op that talks to other ranks: backward calls it before it computes the weight gradients of
  /// the op that reads this one's output. Empty: there is nothing to gain.
  std::function<std::unique_ptr<Underway>(const Tensor& dy)> begin{};
  std::unique_ptr<Underway> underway{};
  int remake_depth = 0;  ///< how many remakes one takes, if those before it are remade too
  Shape shape;           ///< of the output; gradients of its reshaped handles are brought to it
  Tensor grad;           ///< sum of what arrived so far, during backward
  GradSink sink;         ///< leaves only
  bool leaf = false;
  std::shared_ptr<RecomputedPart> part;  ///< that `saved` comes from once backward is here (recompute.h); null: it is there
  ~Node();
};

/// Makes `y` the output of an op. Does nothing when the context is not recording or no input wants a gradient.
Tensor record_rule(const char* op, Tensor y, const Inputs& inputs, Saved saved, AnyRule rule, AnyRule weight_rule = {});
template <Rule F>
Tensor record(const char* op, Tensor y, const Inputs& inputs, Saved saved, const F& rule) {
  return record_rule(op, std::move(y), inputs, std::move(saved), AnyRule(rule));
}
/// An op whose gradient splits: `rule` gives the gradients of activations now, `weight_rule` those of its weights, now or
/// later.
template <Rule F, Rule G>
Tensor record(const char* op, Tensor y, const Inputs& inputs, Saved saved, const F& rule, const G& weight_rule) {
  return record_rule(op, std::move(y), inputs, std::move(saved), AnyRule(rule), AnyRule(weight_rule));
}
/// For outputs that cost less to make again than to keep (norms, gates, dropout): ops that save `y`, which has just been
/// recorded, keep nothing, and their rules get a new one, equal bit for bit. The rule sees no gradient. Chen et al. (2016),
/// "Training Deep Nets with Sublinear Memory Cost".
Tensor remade_by_rule(Tensor y, AnyRule remake);
template <Rule F>
Tensor remade_by(Tensor y, const F& remake) {
  return remade_by_rule(std::move(y), AnyRule(remake));
}
/// Whether ops that save `x` keep only the way to make it.
bool is_remade(const Tensor& x);
/// Whether `record` would do something: lets an op skip what only its backward needs.
bool wants_grad(const Inputs& inputs);

/// Memory for a gradient, without the rows of padding that activations have.
Tensor empty_gradient(Context& context, const Shape& shape, DType dtype);

/// Turns `value` into a leaf whose gradient is summed in `grad` (shape of value, dtype wide(value's)); without one, in memory
/// taken when the first gradient arrives.
void make_leaf(Tensor& value, Tensor grad = {});

/// Weight gradients put off by `backward`, in order; run each once.
class DeferredGrads {
 public:
  void add(std::shared_ptr<Node> node, Tensor dy) { work_.push_back({std::move(node), std::move(dy)}); }
  std::size_t size() const { return work_.size(); }
  /// `after`: called after each, with its inputs still there.
  void run(const std::function<void(const Node&)>& after = {});

 private:
  struct Work {
    std::shared_ptr<Node> node;
    Tensor dy;
  };
  std::vector<Work> work_;
};

struct BackwardOptions {
  Tensor cotangent{};                        ///< of y; empty = ones
  DeferredGrads* deferred = nullptr;         ///< where weight gradients go to wait; null = computed at once
  std::function<void(const Node&)> after{};  ///< called after the rule of each op, with its inputs still there
};
/// Adds dL/dleaf to the sinks of all leaves under y, L = sum(cotangent * y). Saved tensors are freed as it goes: the graph
/// can be walked once. Gradients are summed in a fixed order, so equal graphs give equal bits.
void backward(const Tensor& y, const BackwardOptions& options = {});

/// Adds g (any floating type, the leaf's shape) to its gradient, or writes it if nothing was written yet.
void add_to_sink(Node& leaf, const Tensor& g);

}  // namespace chorus
