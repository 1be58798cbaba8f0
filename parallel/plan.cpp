#include <chorus/parallel/plan.h>
#include <chorus/parallel/redistribute.h>
#include <chorus/parallel/statistics.h>

#include <algorithm>
#include <sstream>

namespace chorus {
namespace {

/// What is wrong with a plan: everything is said at once.
class Complaints {
 public:
  template <class... Parts>
  void operator()(const Parts&... parts) {
    std::ostringstream text;
    text << "\n  ";
    (text << ... << parts);
    text_ += text.str();
  }
  void raise() const { require(text_.empty(), "plan", "doesn't fit the model:", text_); }

 private:
  std::string text_;
};

void place(Param& param, const std::string& path, const std::vector<ParamPlacement>& placements, const Mesh& mesh,
           Complaints& complain) {
  param.layout.clear();
  param.box = Box::whole(param.global);
  param.counted = true;
  for (const auto& [axis_name, placement, unit] : placements) {
    const Axis& axis = mesh.axis(axis_name);
    if (axis.size == 1) continue;
    AxisPlacement entry{axis_name, placement, 0, 1};
    if (placement.kind != Placement::shard_kind) {
      if (axis.rank != 0) param.counted = false;
      param.layout.push_back(entry);
      continue;
    }
    const int dim = placement.dim;
    if (dim < 0 || dim >= param.global.rank()) {
      complain(path, ' ', param.global, " has no dim ", dim, " to be sharded over ", axis_name);
      continue;
    }
    const std::int64_t size = param.box.size[dim];
    if (unit > 0 && size % (unit * axis.size) != 0) {
      complain(path, ' ', param.global, ": dim ", dim, " of ", size, " elements is ", size / unit, " units of ", unit,
               size % unit ? " and a rest" : "", ", which don't divide over the ", axis.size, " ranks of ", axis_name);
      continue;
    }
    const Range range = shard_range(size, axis.rank, axis.size);
    entry.whole = size;
    param.box.begin[dim] += range.begin;
    param.box.size[dim] = range.count();
    param.layout.push_back(entry);
  }
}

/// Where an activation's window begins, from how it lies.
Window window_of(const Tensor& x, const Mesh& mesh) {
  Window window;
  if (!x.layout()) return window;
  for (const auto& at : *x.layout()) {
    if (at.placement.kind != Placement::shard_kind) continue;
    const Axis& axis = mesh.axis(at.axis);
    require(at.whole > 0 || x.numel() == 0, "dropout", "the whole of ", x, ", which lies as ", *x.layout(), ", is not known");
    const std::int64_t begin = shard_range(at.whole, axis.rank, axis.size).begin;
    (at.placement.dim == 0 ? window.first_row : window.first_feature) += begin;
  }
  return window;
}

}  // namespace

void Plan::add(const std::string& prefix, const Plan& part) {
  const auto under = [&prefix](std::string pattern) {
    std::string out = prefix + '.';
    for (const char c : pattern) out += c == '|' ? "|" + prefix + '.' : std::string(1, c);
    return out;
  };
  for (auto rule : part.params) rule.pattern = under(rule.pattern), params.push_back(rule);
  for (auto rule : part.ports) rule.pattern = under(rule.pattern), ports.push_back(rule);
  for (auto rule : part.slots) rule.pattern = under(rule.pattern), slots.push_back(rule);
  factors.insert(factors.end(), part.factors.begin(), part.factors.end());
}

void detail::apply(const Plan& plan, const Reachable& module, Mesh& mesh) {
  for (const auto& factor : plan.factors) mesh.factor(factor.axis, factor.outer, factor.outer_name, factor.inner_name);
  Complaints complain;

  std::vector<bool> used(plan.params.size());
  for (const auto& [path, param] : module.params) {
    const auto rule =
        std::find_if(plan.params.begin(), plan.params.end(), [&](const auto& r) { return path_matches(r.pattern, path); });
    if (rule == plan.params.end()) {
      complain("no rule for parameter ", path, ' ', param->global);
      continue;
    }
    used[static_cast<std::size_t>(rule - plan.params.begin())] = true;
    place(*param, path, rule->placements, mesh, complain);
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    if (!used[i])
      complain("parameter rule '", plan.params[i].pattern, "' matches none, or none that is left by the rules before it");

  for (const auto& rule : plan.ports) {
    const Axis* axis = &mesh.axis(rule.axis);
    bool hit = false;
    for (const auto& [path, port] : module.ports) {
      if (!path_matches(rule.pattern, path)) continue;
      hit = true;
      if (axis->size == 1) continue;
      port->hook = [axis, to = rule.to, before = port->hook](Tensor x) {
        return redistribute(before ? before(std::move(x)) : std::move(x), *axis, to);
      };
    }
    if (!hit) complain("port rule '", rule.pattern, "' matches no port");
  }
  for (const auto& rule : plan.slots) {
    bool hit = false;
    for (const auto& slot : module.slots) {
      if (!path_matches(rule.pattern, slot.path)) continue;
      hit = true;
      if (slot.signature != rule.signature)
        complain("slot ", slot.path, " has another signature than its rule");
      else
        rule.install(slot.slot);
    }
    if (!hit) complain("slot rule '", rule.pattern, "' matches no slot");
  }
  complain.raise();

  if (mesh.alone()) return;
  for (Dropout* dropout : module.dropouts)
    dropout->window = [&mesh](const Tensor& x, const Rows&) { return window_of(x, mesh); };
  Group* stage = mesh.axis("stage").group;
  for (StepStatistics* statistics : module.statistics)
    if (stage) share_statistics(*statistics, *stage);
}

Tensor loss_term(Tensor loss, const Mesh& mesh) {
  if (!loss || !loss.layout()) return loss;
  const Layout layout = *loss.layout();
  for (const auto& at : layout) {
    require(at.placement.kind != Placement::shard_kind, "plan", "the loss ", loss, " lies as ", layout);
    if (at.placement == placement::copy) loss = redistribute(std::move(loss), mesh.axis(at.axis), placement::same);
  }
  return loss;
}

double loss_value(const Tensor& loss, const Mesh& mesh) {
  if (!loss) return 0;
  Tensor value = loss.detach();
  if (value.layout())
    for (const auto& at : *loss.layout())
      if (at.placement == placement::sum) value = moved(value, mesh.axis(at.axis), at.placement, placement::same);
  return value.item();
}

}  // namespace chorus
