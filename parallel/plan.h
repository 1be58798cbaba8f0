// How a model lies on a mesh, as data: which parameter lies how, which port redistributes, which slot gets another core. A
// model has its plan in a file beside it; nothing in the model knows of it.
#pragma once
#include <chorus/nn/layers/norm.h>
#include <chorus/nn/materialize.h>
#include <chorus/nn/path_patterns.h>
#include <chorus/parallel/mesh.h>

#include <any>
#include <functional>
#include <typeindex>

namespace chorus {

/// A placement of parameters along one axis of the mesh.
struct ParamPlacement {
  std::string axis;
  Placement placement;
  std::int64_t unit = 0;  ///< of a sharded dim: elements that stay together, such as a head's, equally many units on every
                          ///< rank; 0: elements go where shard_range says
};

struct Plan {
  struct ParamRule {
    std::string pattern;                     ///< of paths (path_matches)
    std::vector<ParamPlacement> placements;  ///< outer axis first
  };
  struct PortRule {
    std::string pattern, axis;
    Placement to;
  };
  struct SlotRule {
    std::string pattern;
    std::type_index signature;
    std::function<void(void* slot)> install;
  };
  /// An axis cut into two (Mesh::factor).
  struct Factor {
    std::string axis;
    int outer = 1;
    std::string outer_name, inner_name;
  };
  std::vector<ParamRule> params;  ///< the first that matches a parameter is its rule
  std::vector<PortRule> ports;
  std::vector<SlotRule> slots;
  std::vector<Factor> factors;

  template <class R, class... A>
  void slot(const std::string& pattern, std::function<R(A...)> core) {
    slots.push_back({pattern, typeid(Slot<R(A...)>), [core](void* at) { static_cast<Slot<R(A...)>*>(at)->replaced = core; }});
  }
  /// All rules of a part of the model, whose paths begin with `prefix` and a dot.
  void add(const std::string& prefix, const Plan& part);
};

namespace detail {
/// What a plan can reach in a module.
struct Reachable {
  struct AnySlot {
    std::string path;
    std::type_index signature;
    void* slot;
  };
  std::vector<std::pair<std::string, Param*>> params;
  std::vector<std::pair<std::string, Port*>> ports;
  std::vector<AnySlot> slots;
  std::vector<Dropout*> dropouts;
  std::vector<StepStatistics*> statistics;
};
template <class T>
struct IsSlot : std::false_type {};
template <class S>
struct IsSlot<Slot<S>> : std::true_type {};

template <class M>
Reachable reachable(M& module) {
  Reachable out;
  for_each_param(module, [&](const std::string& path, Param& param) { out.params.push_back({path, &param}); });
  visit_fields(module, "", [&]<class Leaf>(const std::string& path, Leaf& leaf) {
    if constexpr (std::is_same_v<Leaf, Port>) out.ports.push_back({path, &leaf});
    if constexpr (std::is_same_v<Leaf, Dropout>) out.dropouts.push_back(&leaf);
    if constexpr (std::is_same_v<Leaf, StepStatistics>) out.statistics.push_back(&leaf);
    if constexpr (IsSlot<Leaf>::value) out.slots.push_back({path, typeid(Leaf), &leaf});
  });
  return out;
}
void apply(const Plan& plan, const Reachable& module, Mesh& mesh);
}  // namespace detail

/// Before `materialize`: gives every parameter its layout and this rank's box, fills ports and slots, and tells dropouts where
/// their activations lie. Rules along axes of one rank do nothing. Errors, all at once: a rule that matches nothing or only
/// what earlier rules match, a parameter without a rule, a dim that isn't cut into whole units or as evenly as asked. `mesh`
/// must outlive the module.
template <class M>
void apply(const Plan& plan, M& module, Mesh& mesh) {
  detail::apply(plan, detail::reachable(module), mesh);
}

/// Runs `forward` on the module's shapes and layouts alone: an op where placements meet that must not (layout_rules.h) is an
/// error before the model takes memory. `forward` should give the model a batch without rows.
template <class M>
void check_layouts(M& module, Context& context, DType dtype, const std::function<void()>& forward,
                   const Precision& precision = {}) {
  declare_unbacked(module, context, dtype, precision);
  NoGrad quiet(context);
  forward();
}

/// A loss as backward may be seeded from it, with 1 on every rank: `same` or `sum`. One that lies as `copy` becomes `same`, for
/// free. Empty stays empty; a sharded one is an error.
Tensor loss_term(Tensor loss, const Mesh& mesh);
/// Its value, the same on all ranks of the model. All of them call it.
double loss_value(const Tensor& loss, const Mesh& mesh);

}  // namespace chorus
