#include <chorus/parallel/unit_schedule.h>

#include <algorithm>
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

/// Records in what order inputs of ops are met. All nodes keep what they save, so that it can be looked at.
class Observed {
 public:
  Observed(Context& context, std::function<void(const Tensor&)> see) : context_(context), see_(std::move(see)) {
    context_.see_input = &see_;
    context_.recompute = false;
  }
  ~Observed() {
    context_.see_input = nullptr;
    context_.recompute = true;
  }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  Context& context_;
  std::function<void(const Tensor&)> see_;
};

}  // namespace

UnitSchedule record_schedule(Context& context, const std::unordered_map<const Storage*, int>& unit_of,
                             const std::unordered_map<const Node*, int>& unit_of_leaf, int root, Reshard reshard,
                             const std::vector<bool>& trains, const std::function<Tensor()>& forward) {
  using Event = UnitSchedule::Event;
  UnitSchedule schedule;
  std::set<int> stay;  // units that are not let go of in the forward pass once they are there
  int current = -1;
  const auto unit_in = [&](const Tensor& tensor) {
    const auto found = unit_of.find(&tensor.storage());
    return found == unit_of.end() ? -1 : found->second;
  };
  const auto read = [&](const Tensor& tensor) {
    const int unit = unit_in(tensor);
    if (unit < 0 || unit == current || stay.contains(unit)) return;
    schedule.forward.push_back(unit);
    if (unit == root || reshard == Reshard::never) stay.insert(unit);
    if (unit != root) current = unit;
  };
  Tensor loss;
  {
    const Observed observed(context, read);
    loss = forward();
  }
  std::set<int> there = stay;
  if (current >= 0 && reshard != Reshard::always) there.insert(current);

  const auto nodes = walk(loss);
  const std::size_t units = trains.size();
  constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
  std::vector<std::size_t> last_read(units, nowhere), last_use(units, nowhere);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for_each_saved(*nodes[i], [&](const Tensor& tensor) {
      if (const int unit = unit_in(tensor); unit >= 0) last_read[static_cast<std::size_t>(unit)] = i;
    });
    for (const auto& input : nodes[i]->inputs)
      if (const auto leaf = unit_of_leaf.find(input.get()); leaf != unit_of_leaf.end())
        last_use[static_cast<std::size_t>(leaf->second)] = i;
  }
  for (const int unit : there)
    if (last_read[static_cast<std::size_t>(unit)] != nowhere) schedule.kept.push_back(unit);
  there = {schedule.kept.begin(), schedule.kept.end()};

  std::vector<int> read_for_the_last_time;  // let go of when the next comes, so that what an op has read stays until it is done
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for_each_saved(*nodes[i], [&](const Tensor& tensor) {
      const int unit = unit_in(tensor);
      if (unit < 0 || !there.insert(unit).second) return;
      for (const int old : read_for_the_last_time) schedule.backward.push_back({Event::release, old});
      read_for_the_last_time.clear();
      schedule.backward.push_back({Event::gather, unit});
    });
    for (std::size_t u = 0; u < units; ++u) {
      if (trains[u] && last_use[u] == i) schedule.backward.push_back({Event::reduce, static_cast<int>(u)});
      if (last_read[u] == i) read_for_the_last_time.push_back(static_cast<int>(u));
    }
  }
  for (std::size_t u = 0; u < units; ++u)
    if (trains[u] && last_use[u] == nowhere) schedule.backward.push_back({Event::reduce, static_cast<int>(u)});
  for (const int old : read_for_the_last_time) schedule.backward.push_back({Event::release, old});
  return schedule;
}

}  // namespace chorus
