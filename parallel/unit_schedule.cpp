#include <chorus/parallel/unit_schedule.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

namespace chorus {
namespace {

/// Nodes under `loss`, in the order in which backward runs them.
std::vector<const Node*> walk(const Tensor& loss) {
  std::vector<const Node*> nodes, open;
  std::unordered_set<const Node*> seen;
  const auto meet = [&](const Node* node) {
    if (node && !node->leaf && seen.insert(node).second) open.push_back(node), nodes.push_back(node);
  };
  if (loss) meet(loss.node().get());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    for (const auto& input : node->inputs) meet(input.get());
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->order > b->order; });
  return nodes;
}

/// Calls f(tensor) for what the rule of `node` reads, and for what is read to make it once more.
template <class F>
void for_each_saved(const Node& node, const F& f) {
  for (const auto& tensor : node.saved)
    if (tensor) f(tensor);
  for (const auto& remade : node.remade) for_each_saved(*node.inputs[remade.input], f);
}

/// Watches all ops. Nodes keep all that they save, so that it can be looked at.
class Watched {
 public:
  using See = std::function<void(const char*, const Inputs&)>;
  Watched(Context& context, See see)
      : context_(context), see_(std::move(see)), before_(context.see_op), recompute_before_(context.recompute) {
    context_.see_op = &see_;
    context_.recompute = false;
  }
  ~Watched() {
    context_.see_op = before_;
    context_.recompute = recompute_before_;
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 private:
  Context& context_;
  const See see_;
  const See* const before_;
  const bool recompute_before_;
};

class Recorder {
 public:
  Recorder(Context& context, const WalkedUnits& units, Reshard reshard)
      : context_(context),
        units_(units),
        reshard_(reshard),
        last_forward_(units.paths.size(), nowhere),
        last_read_(units.paths.size(), nowhere),
        last_use_(units.paths.size(), nowhere) {}

  UnitSchedule record(const std::function<Tensor()>& forward) {
    Tensor loss;
    {
      const Watched watched(context_, [this](const char* op, const Inputs& inputs) { see(op, inputs); });
      loss = forward();
    }
    nodes_ = walk(loss);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (const int unit : read_by(*nodes_[i])) at(last_read_, unit) = i;
      for (const auto& input : nodes_[i]->inputs)
        if (const auto leaf = units_.of_leaf.find(input.get()); leaf != units_.of_leaf.end()) at(last_use_, leaf->second) = i;
    }
    keep();
    plan_backward();
    return std::move(schedule_);
  }

 private:
  using Event = UnitSchedule::Event;
  static constexpr std::size_t nowhere = static_cast<std::size_t>(-1);

  static std::size_t& at(std::vector<std::size_t>& of, int unit) { return of[static_cast<std::size_t>(unit)]; }
  int unit_of(const Tensor& tensor) const {
    const auto found = units_.of_values.find(&tensor.storage());
    return found == units_.of_values.end() ? -1 : found->second;
  }

  void see(const char* op, const Inputs& inputs) {
    int one = -1;
    for (const Tensor& input : inputs) {
      const int unit = input ? unit_of(input) : -1;
      if (unit < 0) continue;
      if (context_.kept_whole > 0) repeated_[context_.next_node].insert(unit);
      if (unit != units_.root) {
        require(one < 0 || one == unit, "sharding", op, " reads values of two units, '", path(one), "' and '", path(unit), "'");
        one = unit;
      }
      gather_forward(unit);
    }
  }
  const std::string& path(int unit) const { return units_.paths[static_cast<std::size_t>(std::max(unit, 0))]; }

  void gather_forward(int unit) {
    if (unit == current_ || stay_.contains(unit)) return;
    at(last_forward_, unit) = schedule_.forward.size();
    schedule_.forward.push_back(unit);
    if (unit == units_.root || reshard_ == Reshard::never) stay_.insert(unit);
    if (unit != units_.root) current_ = unit;
  }

  /// Units whose values backward reads when it comes to a node: what the node saved, what is read to make that once more, and
  /// where a whole part of the graph is repeated, what its ops read.
  std::set<int> read_by(const Node& node) const {
    std::set<int> units;
    for_each_saved(node, [&](const Tensor& tensor) {
      if (const int unit = unit_of(tensor); unit >= 0) units.insert(unit);
    });
    if (const auto again = repeated_.find(node.order); again != repeated_.end())
      units.insert(again->second.begin(), again->second.end());
    return units;
  }

  /// What backward reads and forward needn't let go of: what stays anyway, and the last unit among the others.
  void keep() {
    int last = -1;
    for (int unit = 0; unit < static_cast<int>(units_.paths.size()); ++unit) {
      if (at(last_read_, unit) == nowhere || at(last_forward_, unit) == nowhere) continue;
      if (stay_.contains(unit)) {
        schedule_.kept.push_back(unit);
      } else if (last < 0 || at(last_forward_, unit) > at(last_forward_, last)) {
        last = unit;
      }
    }
    if (last >= 0 && reshard_ == Reshard::all_but_last) schedule_.kept.push_back(last);
  }

  void plan_backward() {
    std::set<int> there(schedule_.kept.begin(), schedule_.kept.end());
    auto& events = schedule_.backward;
    std::vector<int> done;  // let go of when the next comes: what an op has read stays until it is through
    const auto let_go = [&] {
      for (const int unit : done) events.push_back({Event::release, unit});
      done.clear();
    };
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (const int unit : read_by(*nodes_[i])) {
        if (!there.insert(unit).second) continue;
        let_go();
        events.push_back({Event::gather, unit});
      }
      for (int unit = 0; unit < static_cast<int>(units_.paths.size()); ++unit) {
        if (trains(unit) && at(last_use_, unit) == i) events.push_back({Event::reduce, unit});
        if (at(last_read_, unit) == i) done.push_back(unit);
      }
    }
    for (int unit = 0; unit < static_cast<int>(units_.paths.size()); ++unit)
      if (trains(unit) && at(last_use_, unit) == nowhere) events.push_back({Event::reduce, unit});
    let_go();
  }
  bool trains(int unit) const { return units_.trains[static_cast<std::size_t>(unit)]; }

  Context& context_;
  const WalkedUnits& units_;
  const Reshard reshard_;
  UnitSchedule schedule_;
  std::set<int> stay_;  // units that forward doesn't let go of
  int current_ = -1;
  std::map<std::uint64_t, std::set<int>> repeated_;  // by a node's number
  std::vector<const Node*> nodes_;                   // in the order of backward
  std::vector<std::size_t> last_forward_, last_read_, last_use_;
};

}  // namespace

UnitSchedule record_schedule(Context& context, const WalkedUnits& units, Reshard reshard,
                             const std::function<Tensor()>& forward) {
  return Recorder(context, units, reshard).record(forward);
}

}  // namespace chorus
