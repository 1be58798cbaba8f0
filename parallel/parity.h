// Serial is the oracle: whatever a plan does on a mesh must give the loss, every gradient, the norm and the weights of one
// rank.
#pragma once
#include <chorus/nn/optim/optimizer.h>
#include <chorus/parallel/activation_checkpointing.h>
#include <chorus/parallel/make_data_parallel.h>
#include <chorus/parallel/plan.h>

#include <map>

namespace chorus {

/// A model and what is asked of it. Everything but the sharing out of samples is the model's own.
template <class M>
struct ParityModel {
  std::string name;
  std::function<std::unique_ptr<M>()> make;  ///< declared, without memory
  std::function<Plan(const Mesh&)> plan;
  int samples = 0;  ///< of a step's whole batch
  /// This microbatch's share of the step's loss, by samples (indices below `samples`, or none): a sum over them divided by
  /// counts of the whole batch. An empty tensor where none of them has a share.
  std::function<Tensor(M&, Context&, std::span<const int> samples, const Pass&)> loss;
  /// The loss of a batch without rows, in which all parts take part; none: `loss` of no samples.
  std::function<Tensor(M&, Context&)> walk = {};
  FreezeRules freeze = {};
  /// What a rank should send in a step, by the keys of ParityRun::bytes_sent; none: nothing is predicted.
  std::function<std::map<std::string, double>(const MeshShape&)> predicted_bytes = {};
};

struct ParityOptions {
  DType dtype = DType::f64;
  int steps = 3, accumulation = 1;
  OptimizerConfig optimizer{.name = "sgd", .weight_decay = 0.1, .momentum = 0.9};
  double learning_rate = 0.05, gradient_clip = 0.5;
  std::uint64_t seed = 1;
  DdpOptions ddp = {};
  Sharding sharding = Sharding::none;
  ShardingOptions shards = {};
  /// Samples of (dp rank, microbatch) in a step; none: dealt like cards.
  std::function<std::vector<int>(int dp_rank, int microbatch)> deal = {};
  bool tp_comm_overlap = false;  ///< Mesh::overlap_exchanges
  bool sums_at_once = false;     ///< a bucket's sum ends where it begins, so that what comes too late for it is always missing
  Recompute recompute = Recompute::none;  ///< of all units
  std::uint64_t delays = 0;               ///< a seed by which ranks are late for their calls; 0: they are not
  bool split_sums = true;                 ///< sums are cut at random over ranks (Axis::split_sums)
  Precision precision = {};
};

/// What one run of some steps did, brought together from all ranks.
struct ParityRun {
  std::vector<double> losses, norms;                     ///< of each step
  std::map<std::string, std::vector<double>> initial;    ///< whole parameters, by path
  std::map<std::string, std::vector<double>> gradients;  ///< of the first step, before clipping
  std::map<std::string, std::vector<double>> weights;    ///< after the last step
  double norm_of_ones = 0;                               ///< the squared norm when every gradient is 1
  std::int64_t parameters = 0;                           ///< trainable, logical
  /// Bytes that a rank sends, on average, by axis and kind of call, as ring algorithms would; "tp all_gather".
  std::map<std::string, double> bytes_sent, bytes_predicted;
};

/// Two runs compared. A difference is relative to the largest magnitude of the tensor it lies in, at least to 1e-4 of the
/// largest of all; so a gradient that is zero but for rounding isn't held against a run.
struct ParityReport {
  struct Worst {
    double difference = 0;
    std::string where;  ///< path and element, with both values
  };
  Worst loss, gradient, norm, weight;
  bool same_start = true;                                  ///< bit-equal initial weights
  bool counts_once = true;                                 ///< norm^2 of ones is the number of parameters
  std::map<std::string, std::pair<double, double>> bytes;  ///< what a rank sent in a step, and the prediction (0: none)
  double worst() const;
  bool passed(double tolerance = 1e-10) const { return same_start && counts_once && worst() <= tolerance; }
  std::string text() const;  ///< some lines for people
};
ParityReport compare(const ParityRun& serial, const ParityRun& parallel);

namespace detail {
/// What the harness needs of a model whose type it doesn't know.
struct AnyModel {
  std::shared_ptr<void> model;
  std::function<void(const Plan&, Mesh&)> apply;
  std::function<void(Recompute)> checkpoint;
  std::function<void(Context&, DType, const std::function<void()>&, const Precision&)> check;
  std::function<ParamStore(Context&, const MaterializeOptions&)> materialize;
  std::function<void()> commit_statistics;
  std::function<Tensor(Context&, std::span<const int>, const Pass&)> loss;
  std::function<Tensor(Context&)> walk;
};
struct AnyParity {
  std::function<AnyModel()> make;
  std::function<Plan(const Mesh&)> plan;
  int samples;
  FreezeRules freeze;
  std::function<std::map<std::string, double>(const MeshShape&)> predicted_bytes;
};
ParityRun parity_run(const AnyParity& parity, const ParityOptions& options, const MeshSizes& sizes, int ranks);

template <class M>
AnyParity any_parity(const ParityModel<M>& given) {
  const auto make = [given] {
    std::shared_ptr<M> model = given.make();
    AnyModel any;
    any.model = model;
    M& m = *model;
    any.apply = [&m](const Plan& plan, Mesh& mesh) { chorus::apply(plan, m, mesh); };
    any.checkpoint = [&m](Recompute mode) { checkpoint_activations(m, "*unit", mode); };
    any.check = [&m](Context& context, DType dtype, const std::function<void()>& forward, const Precision& precision) {
      check_layouts(m, context, dtype, forward, precision);
    };
    any.materialize = [&m](Context& context, const MaterializeOptions& options) {
      return chorus::materialize(m, context, options);
    };
    any.commit_statistics = [&m] { chorus::commit_statistics(m); };
    any.loss = [&m, loss = given.loss](Context& context, std::span<const int> samples, const Pass& pass) {
      return loss(m, context, samples, pass);
    };
    any.walk = [&m, given](Context& context) {
      return given.walk ? given.walk(m, context) : given.loss(m, context, {}, {.training = true});
    };
    return any;
  };
  return {make, given.plan, given.samples, given.freeze, given.predicted_bytes};
}
}  // namespace detail

/// One rank, without a plan: the oracle.
template <class M>
ParityRun parity_serial(const ParityModel<M>& model, const ParityOptions& options = {}) {
  detail::AnyParity any = detail::any_parity(model);
  any.plan = nullptr;
  return detail::parity_run(any, options, {}, 1);
}
/// `ranks` thread-ranks in a mesh of these sizes. Throws what the plan or the mesh refuse.
template <class M>
ParityRun parity_parallel(const ParityModel<M>& model, const MeshSizes& sizes, int ranks, const ParityOptions& options = {}) {
  return detail::parity_run(detail::any_parity(model), options, sizes, ranks);
}
/// Both, compared.
template <class M>
ParityReport check_parity(const ParityModel<M>& model, const MeshSizes& sizes, int ranks, const ParityOptions& options = {}) {
  return compare(parity_serial(model, options), parity_parallel(model, sizes, ranks, options));
}

}  // namespace chorus
