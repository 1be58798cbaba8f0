#include <chorus/core/rng.h>
#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/parallel/group/threads.h>
#include <chorus/parallel/merge.h>
#include <chorus/parallel/parity.h>
#include <chorus/parallel/redistribute.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <sstream>
#include <thread>

namespace chorus {
namespace {

/// Bytes that each call would make a rank send by a ring.
class Traffic {
 public:
  explicit Traffic(int ranks) : ranks_(ranks) {}
  void add(const Call& call) {
    const double n = call.group->size(), bytes = static_cast<double>(size_of(call.dtype()));
    double sent = 0;
    switch (call.op) {
      case Op::all_reduce: sent = 2 * (n - 1) / n * static_cast<double>(call.out.count); break;
      case Op::all_gather: sent = (n - 1) / n * static_cast<double>(call.out.count); break;
      case Op::reduce_scatter: sent = (n - 1) / n * static_cast<double>(call.in.count); break;
      case Op::all_to_all: sent = (n - 1) / n * static_cast<double>(call.in.count); break;
      case Op::broadcast: sent = (n - 1) / n * static_cast<double>(call.out.count); break;
      case Op::send: sent = static_cast<double>(call.in.count); break;
      default: return;
    }
    const std::lock_guard lock(mutex_);
    bytes_[call.group->name() + ' ' + std::string(chorus::name(call.op))] += sent * bytes / ranks_;
  }
  std::map<std::string, double> take() { return std::move(bytes_); }

 private:
  int ranks_;
  std::mutex mutex_;
  std::map<std::string, double> bytes_;
};

/// A group whose sums of gradients are done before backward goes on. As threads, ranks do the work of a sum late: they would
/// mostly find what should have been there before it began.
class AtOnce final : public Group {
 public:
  explicit AtOnce(Group& group)
      : Group(group.name(), group.rank(), group.members(), {}, std::make_shared<FlightRecorder>(group.rank(), 1)),
        group_(group) {}
  void end_all(const std::string& cause) override { group_.end_all(cause); }

 protected:
  std::unique_ptr<Pending::Work> start(const Call& call) override {
    switch (call.op) {
      case Op::all_reduce: group_.all_reduce(call.out, call.reduce); break;
      case Op::all_gather: group_.all_gather(call.in, call.out, call.receive); break;
      case Op::reduce_scatter: group_.reduce_scatter(call.in, call.out, call.receive); break;
      default: fail("parity", chorus::name(call.op), " of group '", name(), "' for data parallelism");
    }
    return nullptr;
  }
  std::unique_ptr<Group> make(const std::string& name, int, const std::vector<int>&) override {
    fail("parity", "group '", name, "' of a group that sums gradients");
  }

 private:
  Group& group_;
};

/// In place of a step's gradients.
void all_ones(ParamStore& store) {
  if (!store.flat_buffers.empty()) {
    store.grads = Tensor::full(*store.context, {store.state_size}, store.wide, 1);
    return;
  }
  for (const auto& leaf : store.leaves) {
    leaf->sink.in(*store.context, leaf->shape).fill(1);
    leaf->sink.written = true;
  }
}

/// One rank's part in a run; what it returns is the same on all ranks.
ParityRun run_rank(const detail::AnyParity& parity, const ParityOptions& options, const MeshSizes& sizes, Group& world,
                   Traffic* traffic, const std::function<void(bool)>& count_traffic) {
  Mesh mesh(world, mesh_shape(sizes, world.size()));
  if (options.split_sums) mesh.split_sums(options.seed);
  if (options.tp_comm_overlap) mesh.overlap_exchanges();
  Context context;
  const detail::AnyModel model = parity.make();
  if (options.recompute != Recompute::none) model.checkpoint(options.recompute);
  if (parity.plan) {
    model.apply(parity.plan(mesh), mesh);
    model.check(
        context, options.dtype, [&] { model.walk(context); }, options.precision);
  }
  ParamStore store = model.materialize(context, {.dtype = options.dtype,
                                                 .seed = options.seed,
                                                 .freeze = parity.freeze,
                                                 .shard = store_shard(options.sharding, mesh),
                                                 .precision = options.precision});
  AtOnce at_once(*mesh.axis(options.sharding == Sharding::none ? "dp_cp" : "dp_shard_cp").group);
  const auto data_parallel = make_data_parallel(store, mesh,
                                                {.sharding = options.sharding,
                                                 .ddp = options.ddp,
                                                 .shards = options.shards,
                                                 .group = options.sums_at_once ? &at_once : nullptr},
                                                [&] { return loss_term(model.walk(context), mesh); });
  Optimizer optimizer(options.optimizer, store);
  const Axis& dp = mesh.axis("dp");

  ParityRun run;
  run.parameters = store.trainable_count();
  const auto keep = [&](std::map<std::string, std::vector<double>>& in, const auto& entries, const auto& owned_of) {
    for (const auto& entry : entries)
      in[entry.path] = merged(held(owned_of(entry), entry, store, mesh).clone(), *entry.param, mesh).to_doubles();
  };
  const auto values = [&](std::map<std::string, std::vector<double>>& in) {
    for (const auto* entries : {&store.trainable, &store.frozen}) keep(in, *entries, [](const auto& e) { return e.master; });
  };
  values(run.initial);

  for (int step = 0; step < options.steps; ++step) {
    const Pass pass{.training = true, .seed = options.seed, .step = static_cast<std::uint64_t>(step)};
    if (traffic) count_traffic(true);
    data_parallel->start_step();
    double loss = 0;
    for (int micro = 0; micro < options.accumulation; ++micro) {
      std::vector<int> samples;
      if (options.deal) {
        samples = options.deal(dp.rank, micro);
      } else {
        for (int i = dp.rank + micro * dp.size; i < parity.samples; i += dp.size * options.accumulation) samples.push_back(i);
      }
      const Tensor term = loss_term(model.loss(context, samples, pass), mesh);
      loss += loss_value(term, mesh);
      data_parallel->backward(term, micro + 1 == options.accumulation);
    }
    data_parallel->finish_step();
    if (traffic) count_traffic(false);
    dp.group->all_reduce(std::span<double>(&loss, 1));
    run.losses.push_back(loss);
    run.norms.push_back(data_parallel->norm());
    if (step == 0) keep(run.gradients, store.trainable, [&](const auto& e) { return store.gradient(e); });
    optimizer.step(store, options.learning_rate, clip_factor(run.norms.back(), options.gradient_clip));
    if (traffic) count_traffic(true);
    data_parallel->values_changed();
    if (traffic) count_traffic(false);
    model.commit_statistics();
  }
  values(run.weights);
  data_parallel->start_step();
  all_ones(store);
  const double norm = data_parallel->norm();
  run.norm_of_ones = norm * norm;
  return run;
}

/// What makes the runs of two ranks differ in a single bit, or nothing.
std::string differing(const ParityRun& a, const ParityRun& b) {
  const auto equal = [](const std::vector<double>& x, const std::vector<double>& y) {
    return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0);
  };
  if (!equal(a.losses, b.losses)) return "losses";
  if (!equal(a.norms, b.norms)) return "norms";
  for (const auto& [what, x, y] : {std::tuple{"initial value of ", &a.initial, &b.initial},
                                   {"gradient of ", &a.gradients, &b.gradients},
                                   {"weight ", &a.weights, &b.weights}})
    for (const auto& [path, values] : *x)
      if (!equal(values, y->at(path))) return what + path;
  return "";
}

void consider(ParityReport::Worst& worst, const std::string& name, const std::vector<double>& expected,
              const std::vector<double>& got, double least_scale) {
  double scale = least_scale;
  for (const double v : expected) scale = std::max(scale, std::abs(v));
  const std::size_t n = std::min(expected.size(), got.size());
  for (std::size_t i = 0; i < std::max(expected.size(), got.size()); ++i) {
    const double difference = i < n ? std::abs(expected[i] - got[i]) / scale : INFINITY;
    if (!(difference > worst.difference) && !std::isnan(difference)) continue;
    std::ostringstream text;
    text.precision(17);
    text << name << '[' << i << ']';
    if (i < n) text << ": serial " << expected[i] << ", parallel " << got[i];
    worst = {std::isnan(difference) ? INFINITY : difference, text.str()};
  }
}

void consider_all(ParityReport::Worst& worst, const std::map<std::string, std::vector<double>>& expected,
                  const std::map<std::string, std::vector<double>>& got) {
  double largest = 0;
  for (const auto& [path, values] : expected)
    for (const double v : values) largest = std::max(largest, std::abs(v));
  for (const auto& [path, values] : expected) {
    const auto other = got.find(path);
    consider(worst, path, values, other == got.end() ? std::vector<double>{} : other->second, 1e-4 * largest + 1e-300);
  }
}

}  // namespace

ParityRun detail::parity_run(const AnyParity& parity, const ParityOptions& options, const MeshSizes& sizes, int ranks) {
  if (ranks == 1) {
    SoloGroup world;
    return run_rank(parity, options, sizes, world, nullptr, {});
  }
  mesh_shape(sizes, ranks);  // refused before any thread is there
  std::vector<ParityRun> runs(static_cast<std::size_t>(ranks));
  Traffic traffic(ranks);
  std::vector<char> counting(static_cast<std::size_t>(ranks), 0);
  ThreadOptions threads;
  threads.time_limit = 60;
  std::vector<RandomStream> late;
  for (int r = 0; r < ranks; ++r) late.emplace_back(random_key(options.delays, static_cast<std::uint64_t>(r), "delays"));
  threads.observe = [&](const Call& call, int rank) {
    if (options.delays) std::this_thread::sleep_for(std::chrono::microseconds(late[static_cast<std::size_t>(rank)].below(400)));
    if (counting[static_cast<std::size_t>(rank)]) traffic.add(call);
  };
  run_ranks(ranks, threads, [&](Group& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    runs[rank] = run_rank(parity, options, sizes, world, &traffic, [&](bool on) { counting[rank] = on; });
  });
  for (std::size_t r = 1; r < runs.size(); ++r) {
    const std::string what = differing(runs[0], runs[r]);
    require(what.empty(), "parity", what, " differs between ranks 0 and ", r);
  }
  runs[0].bytes_sent = traffic.take();
  for (auto& [name, bytes] : runs[0].bytes_sent) bytes /= options.steps;
  if (parity.predicted_bytes) runs[0].bytes_predicted = parity.predicted_bytes(mesh_shape(sizes, ranks));
  return std::move(runs[0]);
}

double ParityReport::worst() const {
  return std::max({loss.difference, gradient.difference, norm.difference, weight.difference});
}

std::string ParityReport::text() const {
  std::ostringstream out;
  for (const auto& [name, worst] : {std::pair{"loss", &loss}, {"gradient", &gradient}, {"norm", &norm}, {"weight", &weight}})
    out << name << ": off by " << worst->difference << (worst->where.empty() ? "" : " at " + worst->where) << '\n';
  for (const auto& [name, sent] : bytes) {
    out << name << ": " << sent.first << " bytes sent by a rank in a step";
    if (sent.second > 0) out << ", " << sent.second << " predicted";
    out << '\n';
  }
  if (!same_start) out << "initial weights differ\n";
  if (!counts_once) out << "the norm doesn't count every parameter once\n";
  return out.str();
}

ParityReport compare(const ParityRun& serial, const ParityRun& parallel) {
  ParityReport report;
  consider(report.loss, "step", serial.losses, parallel.losses, 1e-300);
  consider(report.norm, "step", serial.norms, parallel.norms, 1e-300);
  consider_all(report.gradient, serial.gradients, parallel.gradients);
  consider_all(report.weight, serial.weights, parallel.weights);
  report.same_start = serial.initial == parallel.initial;
  for (const auto* side : {&parallel.bytes_sent, &parallel.bytes_predicted})
    for (const auto& [name, bytes] : *side)
      (side == &parallel.bytes_sent ? report.bytes[name].first : report.bytes[name].second) = bytes;
  const auto ones = static_cast<double>(parallel.parameters);
  report.counts_once = parallel.parameters == serial.parameters && std::abs(parallel.norm_of_ones - ones) < 1e-9 * ones;
  return report;
}

}  // namespace chorus
