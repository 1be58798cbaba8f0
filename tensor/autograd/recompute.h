// Activation checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): a part of the graph keeps its
// input alone. When backward arrives there, what made the part runs again, and what each op saves then goes to the op's node of
// the first run. The graph itself is whole from the first run on, so whoever walks it finds every op and every use of a leaf.
#pragma once
#include <chorus/tensor/autograd/node.h>

#include <string>
#include <string_view>

namespace chorus {

class ActivationFile;
class OffloadedTensors;

struct RecomputeOptions {
  std::string name;                      ///< in errors: the unit's path
  std::vector<std::string> kept_ops;     ///< whose results are kept too, so that these ops are computed once
  std::shared_ptr<ActivationFile> file;  ///< where what is kept waits for backward; null: in memory
};

/// body(x), of which backward needs x only (and the results of `kept_ops`): it runs `body` again, with recording on and
/// `Context::repeating` set. `body` owns what it reads, since its caller is gone by then, and records the same ops each time;
/// ops that differ are an error naming both. Random numbers are functions of keys and counters, so they repeat by themselves;
/// what talks to other ranks does so again. Inside of another such part, and where nothing is recorded, this is body(x) and no
/// more. Gradients are those without it bit for bit, if no op outside reads x after `body` did.
Tensor recomputed(const RecomputeOptions& options, const std::function<Tensor(Tensor)>& body, Tensor x);

/// What `compute` gives; in a part that keeps the results of `op`, what it gave in the first run.
std::vector<Tensor> kept_results(Context& context, std::string_view op, const std::function<std::vector<Tensor>()>& compute);

/// One run of a body, shared by the nodes that it recorded.
class RecomputedPart : public std::enable_shared_from_this<RecomputedPart> {
 public:
  using Body = std::function<Tensor(Tensor)>;
  RecomputedPart(const RecomputeOptions& options, const Body& body, const Tensor& x);
  ~RecomputedPart();
  Tensor first_run(Tensor x);
  /// Before a node of this part is used in backward: repeats the run unless that was done.
  void restore();
  /// `record` calls it for every node while the part runs.
  void recorded(const std::shared_ptr<Node>& node);
  std::vector<Tensor> results(std::string_view op, const std::function<std::vector<Tensor>()>& compute);

 private:
  struct Step {
    const char* op;
    std::weak_ptr<Node> node;  ///< gone where nobody used what it gave
  };
  Tensor run(Tensor x);
  std::vector<Tensor*> held();

  RecomputeOptions options_;
  Body body_;
  Context& context_;
  Tensor input_;
  bool differentiable_;  ///< whether the input wants a gradient
  bool repeating_ = false;
  std::vector<Step> steps_;
  std::vector<std::vector<Tensor>> kept_;
  std::size_t next_step_ = 0, next_kept_ = 0;  ///< of the repetition
  std::unique_ptr<OffloadedTensors> offloaded_;
};

}  // namespace chorus
