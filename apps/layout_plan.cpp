#include <chorus/apps/layout_plan.h>
#include <chorus/apps/run_data.h>
#include <chorus/apps/run_folder.h>
#include <chorus/models/salm/plan.h>
#include <chorus/nn/path_patterns.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace chorus {
namespace {

bool alike(const PlannedPart& a, const PlannedPart& b) {
  const auto same_box = [](const Box& x, const Box& y) { return x.begin == y.begin && x.size == y.size; };
  return a.shape == b.shape && a.layout == b.layout && std::ranges::equal(a.boxes, b.boxes, same_box);
}

/// Folds paths that differ in a layer's number only, where all of them lie alike.
std::vector<PlannedPart> folded(const std::vector<PlannedPart>& parts) {
  std::map<std::string, std::vector<const PlannedPart*>> kinds;
  for (const auto& part : parts) kinds[without_numbers(part.path)].push_back(&part);
  std::set<std::string> said;
  std::vector<PlannedPart> out;
  for (const auto& part : parts) {
    const std::string kind = without_numbers(part.path);
    const auto& members = kinds[kind];
    const bool fold =
        members.size() > 1 && std::ranges::all_of(members, [&](const PlannedPart* other) { return alike(*other, part); });
    if (!fold) {
      out.push_back(part);
    } else if (said.insert(kind).second) {
      out.push_back(part);
      out.back().path = kind;
      out.back().count = static_cast<int>(members.size());
    }
  }
  return out;
}

class Groups {
 public:
  /// The groups that `peers_of` gives for all ranks, in order of their first rank.
  void add(const std::string& axis, int ranks, const std::function<std::vector<int>(int rank)>& peers_of) {
    std::vector<std::vector<int>> groups;
    for (int r = 0; r < ranks; ++r) {
      auto peers = peers_of(r);
      if (peers.front() == r) groups.push_back(std::move(peers));
    }
    if (groups.front().size() == 1) return;
    const auto known = std::ranges::find(all, groups, &PlannedGroups::groups);
    if (known == all.end())
      all.push_back({{axis}, std::move(groups)});
    else
      known->axes.push_back(axis);
  }
  std::vector<PlannedGroups> all;
};

std::vector<PlannedGroups> groups_of(const MeshShape& shape, const std::vector<Plan::Factor>& factors) {
  Groups groups;
  for (const auto& span : axis_spans())
    groups.add(span.name, shape.world(), [&](int r) { return axis_peers(shape, span.name, r).ranks; });
  for (const auto& factor : factors) {
    const auto line = [&](int r, bool outer) {
      const AxisPeers whole = axis_peers(shape, factor.axis, r);
      const int inner = static_cast<int>(whole.ranks.size()) / factor.outer;
      std::vector<int> out;
      for (int i = 0; i < static_cast<int>(whole.ranks.size()); ++i)
        if (outer ? i % inner == whole.index % inner : i / inner == whole.index / inner)
          out.push_back(whole.ranks[static_cast<std::size_t>(i)]);
      return out;
    };
    groups.add(factor.outer_name, shape.world(), [&](int r) { return line(r, true); });
    groups.add(factor.inner_name, shape.world(), [&](int r) { return line(r, false); });
  }
  return std::move(groups.all);
}

}  // namespace

LayoutPlan plan_layout(const RunConfig& config, int ranks, const std::function<void(const std::string&)>& say) {
  LayoutPlan out;
  out.shape = mesh_shape(config.parallel.sizes(), ranks);
  out.minimum_ranks = minimum_ranks(config.parallel.sizes());
  out.sequence_parallel = config.parallel.sequence_parallel;
  out.sharding = config.parallel.sharding;
  out.optimizer_on_disk = !config.trainer.optimizer_offload_folder.empty();
  std::vector<ManifestEntry> entries;
  if (config.tokenizer_model.empty()) entries = training_entries(config, say).entries;
  const Tokenizer tokenizer(make_tokenizer(config, entries));
  const SalmConfig model_config = sized_config(config, tokenizer);
  const DType type = dtype_of_precision(config.trainer.precision);
  const Precision precision = precision_of(config.trainer, config.model);
  const bool sharded = out.sharding != "none";
  int slices = 1;
  for (int r = 0; r < ranks; ++r) {
    out.place_of.push_back(axis_peers(out.shape, "model", r).index);
    out.slice_of.push_back(sharded ? axis_peers(out.shape, "dp_shard_cp", r).index : 0);
    slices = std::max(slices, out.slice_of.back() + 1);
  }

  for (const auto& phase : config.phases) out.totals.push_back({phase.name, {}});
  std::vector<PlannedPart> parts;
  std::vector<Plan::Factor> factors;
  for (const int rank : axis_peers(out.shape, "model", 0).ranks) {
    Context context;  // before the model, whose buffers lie in it
    Mesh mesh(out.shape, rank);
    Salm model(model_config, tokenizer.size() + 1);
    const Plan plan = salm_plan(model_config, mesh, out.sequence_parallel);
    apply(plan, model, mesh);
    check_salm_layouts(model, context, type, precision);
    const bool first = parts.empty();
    std::size_t i = 0;
    std::int64_t held = 0;
    for_each_param(model, [&](const std::string& path, const Param& param) {
      if (first) parts.push_back({path, 1, param.global, param.layout, {}});
      parts[i++].boxes.push_back(param.box);
      held += param.box.size.numel();
    });
    if (first) factors = plan.factors;
    for (std::size_t p = 0; p < config.phases.size(); ++p) {
      const StoreSize size =
          store_size(model, {config.phases[p].freeze_params, config.phases[p].prevent_freeze_params}, type, precision, sharded);
      auto& of_slice = out.totals[p].of_place.emplace_back();
      for (int slice = 0; slice < slices; ++slice)
        of_slice.push_back({held, size.trained, state_memory(config, size, slice, slices)});
    }
  }
  out.parts = folded(parts);
  out.groups = groups_of(out.shape, factors);
  return out;
}

}  // namespace chorus
