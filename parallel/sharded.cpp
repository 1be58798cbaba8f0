#include <chorus/parallel/grad_norm.h>
#include <chorus/parallel/sharded.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace chorus {
namespace {

constexpr const char* scope = "sharding";

Reshard reshard_of(Sharding sharding, const ShardingOptions& options) {
  if (sharding != Sharding::full || options.reshard_after_forward == "never") return Reshard::never;
  return options.reshard_after_forward == "always" ? Reshard::always : Reshard::all_but_last;
}

}  // namespace

Sharding sharding_of(const std::string& name) {
  for (const Sharding sharding : {Sharding::none, Sharding::optimizer, Sharding::gradients, Sharding::full})
    if (name == chorus::name(sharding)) return sharding;
  fail(scope, "'", name, "'; none, optimizer, gradients and full are there");
}

std::string_view name(Sharding sharding) {
  switch (sharding) {
    case Sharding::none: return "none";
    case Sharding::optimizer: return "optimizer";
    case Sharding::gradients: return "gradients";
    case Sharding::full: return "full";
  }
  fail(scope, "number ", static_cast<int>(sharding), " is none");
}

std::optional<StoreShard> store_shard(Sharding sharding, const Mesh& mesh) {
  if (sharding == Sharding::none) return std::nullopt;
  const Axis& axis = mesh.axis("dp_shard_cp");
  return StoreShard{.rank = axis.rank, .size = axis.size, .values = sharding == Sharding::full};
}

ShardedDataParallel::ShardedDataParallel(ParamStore& store, Sharding sharding, const Mesh& mesh, Group& group,
                                         const ShardingOptions& options, const std::function<Tensor()>& forward)
    : store_(store),
      context_(*store.context),
      sharding_(sharding),
      options_(options),
      group_(group),
      replicas_(*mesh.axis("dp_replicate").group),
      model_(*mesh.axis("model").group),
      sums_(grad_sums(store, mesh)),
      thread_(std::this_thread::get_id()),
      buffers_(store.flat_buffers.size()) {
  require(sharding_ != Sharding::none, scope, "none: that is Ddp");
  std::unordered_map<std::string, int> known;
  std::vector<std::size_t> unit_of_leaf(store_.leaves.size());
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    const FlatBuffer& buffer = store_.flat_buffers[b];
    const auto [found, fresh] = known.try_emplace(buffer.unit, static_cast<int>(units().size()));
    const int unit = found->second;
    if (fresh) {
      buffers_of_.emplace_back();
      walked_.paths.push_back(buffer.unit);
      walked_.trains.push_back(false);
    }
    if (buffer.unit.empty()) walked_.root = unit;
    buffers_of_[static_cast<std::size_t>(unit)].push_back(b);
    if (buffer.trainable) walked_.trains[static_cast<std::size_t>(unit)] = true;
    if (buffer.elements > 0) walked_.of_values[&buffer.values.storage()] = unit;
    for (int r = 0; r < group_.size(); ++r)
      buffers_[b].counts.push_back(shard_range(buffer.elements, r, group_.size()).count());
    for (const auto i : buffer.leaves) {
      unit_of_leaf[i] = static_cast<std::size_t>(unit);
      walked_.of_leaf[store_.leaves[i].get()] = unit;
    }
  }
  there_.assign(units().size(), false);
  uses_.emplace(store_.leaves, std::move(unit_of_leaf), units().size());
  schedule_ = record_schedule(context_, walked_, reshard_of(sharding_, options_), forward);
  last_forward_.assign(units().size(), 0);
  for (std::size_t i = 0; i < schedule_.forward.size(); ++i) last_forward_[static_cast<std::size_t>(schedule_.forward[i])] = i;
  free_gradients();
  // From here on this is known to others: nothing above may leave them with it, should it throw.
  for (std::size_t b = 0; b < buffers_.size(); ++b) {
    const FlatBuffer& buffer = store_.flat_buffers[b];
    if (buffer.elements > 0) buffer.values.storage().keeper = this;
    // What is alone in its buffer keeps what it may take over as its gradient: the fused loss's sum.
    for (std::size_t i = 0; buffer.leaves.size() > 1 && i < buffer.leaves.size(); ++i) {
      Node& leaf = *store_.leaves[buffer.leaves[i]];
      leaf.sink.memory = [this, b, first = buffer.leaf_firsts[i], shape = leaf.shape] {
        return gradients_of(b).flat_view(first, shape);
      };
    }
  }
  values_loaded();
}

ShardedDataParallel::~ShardedDataParallel() {
  // What is underway arrives, unless an exception is on its way: then the group ends.
  if (!shards_values() && std::uncaught_exceptions() == 0) {
    try {
      for (int u = 0; u < static_cast<int>(units().size()); ++u) arrive(u);
    } catch (const Error&) {  // another rank has thrown: whoever calls the group next hears of it
    }
  }
  for (const auto& leaf : store_.leaves) leaf->sink.memory = nullptr;
  for (const auto& buffer : store_.flat_buffers) buffer.values.storage().keeper = nullptr;
}

bool ShardedDataParallel::reduces_always() const { return sharding_ != Sharding::optimizer && !options_.defer_grad_sync; }

Tensor ShardedDataParallel::slice(std::size_t b) const {
  const FlatBuffer& buffer = store_.flat_buffers[b];
  return store_.grads.flat_view(buffer.first, {buffer.owned.count()});
}

// ---- values

void ShardedDataParallel::start_gather(std::size_t b) {
  FlatBuffer& buffer = store_.flat_buffers[b];
  BufferState& state = buffers_[b];
  if (buffer.elements == 0) return;
  Storage& storage = buffer.values.storage();
  state.landing = Tensor::released(context_, {buffer.elements}, buffer.values.dtype(), storage.category);
  Tensor part = buffer.part;
  if (shards_values()) {
    Storage memory(context_, storage.bytes, storage.category);
    state.landing.storage().take(memory);
  } else {
    state.landing.storage().take(storage);
    part = state.landing.flat_view(buffer.owned.begin, {buffer.owned.count()});
  }
  state.gather = group_.start_all_gather(part, state.landing, state.counts);
  state.gathering = true;
}

void ShardedDataParallel::start_gather_of(int unit) {
  const Span span(context_.trace, "all_gather parameters");
  for (const auto b : buffers_of(unit)) start_gather(b);
}

void ShardedDataParallel::arrive(int unit) {
  const Span span(context_.trace, "all_gather parameters");
  for (const auto b : buffers_of(unit)) {
    BufferState& state = buffers_[b];
    if (!std::exchange(state.gathering, false)) continue;
    state.gather.wait();
    store_.flat_buffers[b].values.storage().take(state.landing.storage());
    state.landing = {};
  }
  there_[static_cast<std::size_t>(unit)] = true;
}

void ShardedDataParallel::release(int unit) {
  for (const auto b : buffers_of(unit)) store_.flat_buffers[b].values.storage().release();
  there_[static_cast<std::size_t>(unit)] = false;
}

void ShardedDataParallel::fetch(Storage& storage) {
  const int unit = walked_.of_values.at(&storage);
  require(std::this_thread::get_id() == thread_, scope, "'", path(unit), "' is read by another thread than its rank's");
  if (!shards_values()) return arrive(unit);
  if (phase_ == Phase::idle) start_forward();
  const auto begin = next_;
  if (phase_ == Phase::forward) {
    const auto& order = schedule_.forward;
    const auto at = std::find(order.begin() + static_cast<std::ptrdiff_t>(begin), order.end(), unit);
    require(at != order.end(), scope, "the values of '", path(unit),
            "' are read in the forward pass when others should be: its order is not that of a batch without rows");
    return forward_to(static_cast<std::size_t>(at - order.begin()) + 1);
  }
  const auto& order = schedule_.backward;
  const UnitSchedule::Event wanted{UnitSchedule::Event::gather, unit};
  const auto at = std::find(order.begin() + static_cast<std::ptrdiff_t>(begin), order.end(), wanted);
  require(at != order.end(), scope, "the values of '", path(unit),
          "' are read in the backward pass when others should be: its order is not that of a batch without rows");
  backward_to(static_cast<std::size_t>(at - order.begin()) + 1);
}

void ShardedDataParallel::start_forward() {
  phase_ = Phase::forward;
  next_ = issued_ = 0;
}

void ShardedDataParallel::forward_to(std::size_t end) {
  const auto& order = schedule_.forward;
  const auto issue = [&](std::size_t until) {
    for (; issued_ < std::min(until, order.size()); ++issued_) start_gather_of(order[issued_]);
  };
  for (; next_ < end; ++next_) {
    issue(next_ + 1);
    arrive(order[next_]);
    if (reshard_of(sharding_, options_) != Reshard::never && order[next_] != walked_.root)
      for (int u = 0; u < static_cast<int>(units().size()); ++u)
        if (there_[static_cast<std::size_t>(u)] && u != order[next_] && u != walked_.root &&
            !(kept(u) && last_forward_[static_cast<std::size_t>(u)] < next_))
          release(u);
    if (options_.overlap) issue(next_ + 2);
  }
}

bool ShardedDataParallel::kept(int unit) const {
  return std::find(schedule_.kept.begin(), schedule_.kept.end(), unit) != schedule_.kept.end();
}

void ShardedDataParallel::finish_forward() {
  if (!shards_values()) return;
  require(phase_ != Phase::held, scope, "a backward pass while all values are held");
  if (phase_ == Phase::idle) start_forward();
  forward_to(schedule_.forward.size());
  for (int u = 0; u < static_cast<int>(units().size()); ++u)
    if (there_[static_cast<std::size_t>(u)] && !kept(u)) release(u);
}

void ShardedDataParallel::values_changed() {
  require(phase_ == Phase::idle, scope, "values change in the middle of a microbatch");
  if (shards_values()) return;  // gathered for each microbatch
  const Span span(context_.trace, "all_gather parameters");
  const auto gather = [&](int unit) {
    arrive(unit);
    for (const auto b : buffers_of(unit))
      if (store_.flat_buffers[b].trainable) start_gather(b);
    if (!options_.overlap) arrive(unit);
  };
  // In the order in which they will be read.
  const auto& order = schedule_.forward;
  for (const int u : order) gather(u);
  for (int u = 0; u < static_cast<int>(units().size()); ++u)
    if (std::find(order.begin(), order.end(), u) == order.end()) gather(u);
}

void ShardedDataParallel::values_loaded() {
  require(phase_ == Phase::idle, scope, "values change in the middle of a microbatch");
  if (shards_values()) return;
  for (int u = 0; u < static_cast<int>(units().size()); ++u) {
    arrive(u);
    start_gather_of(u);
    arrive(u);
  }
}

void ShardedDataParallel::hold_values() {
  require(phase_ == Phase::idle, scope, "values are asked for in the middle of a microbatch");
  for (int u = 0; u < static_cast<int>(units().size()); ++u) {
    if (shards_values()) start_gather_of(u);
    arrive(u);
  }
  phase_ = Phase::held;
}

void ShardedDataParallel::let_go() {
  phase_ = Phase::idle;
  if (!shards_values()) return;
  for (int u = 0; u < static_cast<int>(units().size()); ++u) release(u);
}

// ---- gradients

void ShardedDataParallel::start_step() {
  require(phase_ == Phase::idle, scope, "a step starts before the one before has ended");
  free_gradients();
}

void ShardedDataParallel::free_gradients() {
  finish_reduces();
  store_.start_step();
  store_.grads = {};
  for (auto& state : buffers_) state.gradients = {}, state.written = false;
  last_ = false;
}

Tensor& ShardedDataParallel::gradients_of(std::size_t b) {
  Tensor& memory = buffers_[b].gradients;
  if (memory) return memory;
  const FlatBuffer& buffer = store_.flat_buffers[b];
  memory = flat_gradients(context_, store_.leaves, buffer.leaves, buffer.leaf_firsts, buffer.elements,
                          reduces_always() ? Category::communication : Category::gradients);
  return memory;
}

void ShardedDataParallel::backward(const Tensor& loss, bool last, BackwardOptions options) {
  require(!last_, scope, "a microbatch after the last one of the step");
  require(options.deferred == nullptr, scope, "weight gradients can't be put off");
  finish_forward();
  phase_ = Phase::backward;
  next_ = issued_ = 0;
  last_ = last;
  if (options_.overlap) start_next_gather();
  uses_->count(loss);
  options.after = [this, theirs = std::move(options.after)](const Node& node) {
    if (theirs) theirs(node);
    ran(node);
  };
  if (loss && loss.requires_grad()) chorus::backward(loss, options);
  backward_to(schedule_.backward.size());
  phase_ = Phase::idle;
}

void ShardedDataParallel::ran(const Node& node) {
  if (const auto unexpected = uses_->ran(node))
    fail(scope, "a parameter of '", path(walked_.of_leaf.at(store_.leaves[*unexpected].get())), "' got a gradient from ",
         node.op, " after all its uses in the backward pass");
  run_ready();
}

void ShardedDataParallel::run_ready() {
  const auto& order = schedule_.backward;
  while (next_ < order.size() && order[next_].kind == UnitSchedule::Event::reduce &&
         uses_->waiting(static_cast<std::size_t>(order[next_].unit)) == 0)
    run(order[next_++]);
}

void ShardedDataParallel::backward_to(std::size_t end) {
  while (next_ < end) run(schedule_.backward[next_++]);
}

void ShardedDataParallel::start_next_gather() {
  const auto& order = schedule_.backward;
  while (issued_ < order.size() && order[issued_].kind != UnitSchedule::Event::gather) ++issued_;
  if (issued_ < order.size()) start_gather_of(order[issued_++].unit);
}

void ShardedDataParallel::run(const UnitSchedule::Event& event) {
  switch (event.kind) {
    case UnitSchedule::Event::gather:
      if (issued_ < next_) start_next_gather();
      arrive(event.unit);
      if (options_.overlap) start_next_gather();
      break;
    case UnitSchedule::Event::reduce:
      require(uses_->waiting(static_cast<std::size_t>(event.unit)) == 0, scope, "'", path(event.unit),
              "' still gets gradients when they should be complete");
      if (last_ || reduces_always()) start_reduce(event.unit);
      break;
    case UnitSchedule::Event::release:
      if (shards_values()) release(event.unit);
      break;
  }
}

void ShardedDataParallel::start_reduce(int unit) {
  const Span span(context_.trace, "reduce_scatter gradients");
  finish_reduces();
  for (const auto b : buffers_of(unit))
    if (store_.flat_buffers[b].trainable) start_reduce_buffer(b);
  if (!options_.overlap) finish_reduces();
}

void ShardedDataParallel::start_reduce_buffer(std::size_t b) {
  const FlatBuffer& buffer = store_.flat_buffers[b];
  BufferState& state = buffers_[b];
  for (const auto i : buffer.leaves) {
    Node& leaf = *store_.leaves[i];
    if (!leaf.sink.written) leaf.sink.in(context_, leaf.shape).fill(0);
  }
  state.summing = buffer.leaves.size() == 1 ? store_.leaves[buffer.leaves.front()]->sink.grad : state.gradients;
  // What is being summed must not be added to: the next microbatch of the step begins anew.
  state.gradients = {};
  for (const auto i : buffer.leaves) {
    store_.leaves[i]->sink.grad = {};
    store_.leaves[i]->sink.written = false;
  }
  if (!store_.grads)
    store_.grads = Tensor::empty(context_, {store_.state_size}, store_.wide,
                                 reduces_always() ? Category::gradients : Category::communication);
  if (group_.size() > 1) state.summing = converted(state.summing, buffer.types.reduce);
  if (const DType type = state.summing.dtype(); state.written || type != store_.wide)
    state.reduced = Tensor::empty(context_, {buffer.owned.count()}, type, Category::communication);
  state.reduce = group_.start_reduce_scatter(state.summing, state.reduced ? state.reduced : slice(b), state.counts);
  state.final = last_;
  reducing_.push_back(b);
}

void ShardedDataParallel::finish_reduces() {
  for (const auto b : std::exchange(reducing_, {})) {
    BufferState& state = buffers_[b];
    state.reduce.wait();
    if (state.reduced) take_over(state.reduced, state.written, slice(b));
    state.written = true;
    state.reduced = state.summing = {};
    if (!state.final || replicas_.size() == 1) continue;
    state.replicated = converted(slice(b), store_.flat_buffers[b].types.reduce);
    state.replicate = replicas_.start_all_reduce(state.replicated);
  }
}

void ShardedDataParallel::finish_step() {
  require(last_, scope, "a step ends without its last microbatch");
  const Span span(context_.trace, "reduce_scatter gradients");
  finish_reduces();
  for (std::size_t b = 0; b < buffers_.size() && replicas_.size() > 1; ++b) {
    if (!store_.flat_buffers[b].trainable) continue;
    BufferState& state = buffers_[b];
    state.replicate.wait();
    if (state.replicated.dtype() != store_.wide) take_over(state.replicated, false, slice(b));
    state.replicated = {};
  }
  last_ = false;
  for (const auto& sum : sums_) sum_gradients(store_, sum);
}

double ShardedDataParallel::norm() const {
  Group* const groups[] = {&group_, &model_};
  return grad_norm(store_, groups);
}

}  // namespace chorus
