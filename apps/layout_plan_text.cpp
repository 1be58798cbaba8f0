#include <chorus/apps/layout_plan.h>
#include <chorus/apps/text_table.h>
#include <chorus/core/text.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

namespace chorus {
namespace {

template <class T>
std::string text_of(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

/// "0 1 2", and of many the first and the last.
std::string list(const std::vector<int>& ranks) {
  constexpr std::size_t most = 16;
  std::string out;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks.size() > most && i == most / 2) out += " ...", i = ranks.size() - 1;
    out += (out.empty() ? "" : " ") + std::to_string(ranks[i]);
  }
  return out;
}

std::string box_text(const Box& box) {
  std::string out = "[";
  for (int d = 0; d < box.size.rank(); ++d)
    out += (d ? ", " : "") + std::to_string(box.begin[d]) + ':' + std::to_string(box.begin[d] + box.size[d]);
  return out + ']';
}

std::string layout_name(const Layout& layout) { return layout.empty() ? "whole" : text_of(layout); }

/// What places have, each different thing once: "(6, 18) at 0 2, (7, 18) at 1 3".
template <class F>
std::string by_place(std::size_t places, const F& text_at) {
  std::vector<std::pair<std::string, std::vector<int>>> kinds;
  for (std::size_t p = 0; p < places; ++p) {
    const std::string text = text_at(p);
    auto known = std::ranges::find(kinds, text, &std::pair<std::string, std::vector<int>>::first);
    if (known == kinds.end()) known = kinds.insert(kinds.end(), {text, {}});
    known->second.push_back(static_cast<int>(p));
  }
  if (kinds.size() == 1) return kinds[0].first;
  std::string out;
  for (const auto& [text, at] : kinds) out += (out.empty() ? "" : ", ") + text + " at " + list(at);
  return out;
}

std::string groups_text(const LayoutPlan& plan, int rank) {
  constexpr std::size_t most = 8;
  std::vector<std::vector<std::string>> rows;
  for (const auto& [axes, groups] : plan.groups) {
    std::string names, members;
    for (const auto& axis : axes) names += (names.empty() ? "" : ", ") + axis;
    std::size_t said = 0;
    for (const auto& group : groups) {
      if (rank >= 0 && std::ranges::find(group, rank) == group.end()) continue;
      if (said++ < most) members += (members.empty() ? "{" : " {") + list(group) + '}';
    }
    if (said > most) members += " and " + std::to_string(said - most) + " more";
    rows.push_back({names, members});
  }
  return text_table(rows, 2);
}

const PlannedTotal& total_of(const LayoutPlan& plan, const std::vector<std::vector<PlannedTotal>>& of_place, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return of_place[static_cast<std::size_t>(plan.place_of[r])][static_cast<std::size_t>(plan.slice_of[r])];
}

/// The places to speak of: that of one rank, or all.
std::vector<std::size_t> places(const LayoutPlan& plan, int rank) {
  if (rank >= 0) return {static_cast<std::size_t>(plan.place_of.at(static_cast<std::size_t>(rank)))};
  std::vector<std::size_t> out;
  for (std::size_t p = 0; p < plan.totals.front().of_place.size(); ++p) out.push_back(p);
  return out;
}

}  // namespace

std::string layout_text(const LayoutPlan& plan, int rank) {
  const MeshShape& s = plan.shape;
  std::ostringstream out;
  out << s.world() << (s.world() == 1 ? " rank" : " ranks: " + s.describe(plan.sequence_parallel)) << "\n  dense axes: pp "
      << s.pp << ", dp_replicate " << s.dp_replicate << ", dp_shard " << s.dp_shard << ", cp " << s.cp << ", tp " << s.tp
      << "\n  expert axes: pp " << s.pp << ", edp " << s.edp << ", ep " << s.ep << ", etp " << s.etp
      << "\n  these sizes need at least " << plan.minimum_ranks << (plan.minimum_ranks == 1 ? " rank" : " ranks") << '\n';
  const bool sharded = plan.sharding != "none";
  if (sharded)
    out << "  sharding " << plan.sharding << ": " << s.dp_shard * s.cp
        << (s.dp_shard * s.cp == 1 ? " rank has" : " ranks share out") << " the state of each part of the model\n";
  if (!plan.groups.empty()) out << "\n== groups of " << (rank < 0 ? "ranks" : "rank " + std::to_string(rank)) << '\n';
  out << groups_text(plan, rank);

  const auto at = places(plan, rank);
  out << "\n== parameters" << (rank >= 0 ? " of rank " + std::to_string(rank) : "") << '\n';
  std::vector<std::vector<std::string>> rows{{"parameter", "layers", "shape", "lies as", rank < 0 ? "held" : "held, of it"}};
  for (const auto& part : plan.parts)
    rows.push_back({part.path, part.count > 1 ? std::to_string(part.count) : "", text_of(part.shape), layout_name(part.layout),
                    rank < 0 ? by_place(part.boxes.size(), [&](std::size_t p) { return text_of(part.boxes[p].size); })
                             : text_of(part.boxes[at[0]].size) + ' ' + box_text(part.boxes[at[0]])});
  out << text_table(rows, rows[0].size());

  out << "\n== a rank holds\n";
  rows = {{"phase", "parameters", "trained", "values", "gradients",
           plan.optimizer_on_disk ? "optimizer state, on disk" : "optimizer state"}};
  if (sharded) rows[0].insert(rows[0].end(), {"gathered at a time", "other gradients"});
  if (rank < 0) rows[0].push_back("ranks");
  for (const auto& [phase, of_place] : plan.totals) {
    std::vector<std::pair<std::vector<std::string>, std::vector<int>>> kinds;
    for (int r = std::max(rank, 0); r < (rank < 0 ? s.world() : rank + 1); ++r) {
      const PlannedTotal& t = total_of(plan, of_place, r);
      std::vector<std::string> row{phase, std::to_string(t.parameters), std::to_string(t.trained)};
      for (const double bytes : {t.state.held.values, t.state.held.gradients, t.state.held.optimizer})
        row.push_back(human_bytes(bytes));
      if (sharded) row.insert(row.end(), {human_bytes(t.state.gathered), human_bytes(t.state.second_gradients)});
      auto known = std::ranges::find(kinds, row, &std::pair<std::vector<std::string>, std::vector<int>>::first);
      if (known == kinds.end()) known = kinds.insert(kinds.end(), {std::move(row), {}});
      known->second.push_back(r);
    }
    for (auto& [row, holders] : kinds) {
      if (rank < 0) row.push_back(kinds.size() == 1 ? "all" : list(holders));
      rows.push_back(std::move(row));
    }
  }
  out << text_table(rows, 1);
  if (at.size() > 1) out << "  (parameters held at n: by ranks that are n-th in their group 'model')\n";
  if (sharded) {
    out << "  parameters and trained: of the rank's part of the model, of which it owns a slice\n"
           "  gathered at a time: values of other ranks' slices, for as long as they are read\n"
           "  other gradients: those not summed yet; where all are kept until a step's last microbatch, the sums of the "
           "slice\n";
  }
  return out.str();
}

std::string layout_json(const LayoutPlan& plan, int rank) {
  using Json = nlohmann::ordered_json;
  const MeshShape& s = plan.shape;
  const auto sizes = [](const Shape& shape) {
    Json out = Json::array();
    for (int d = 0; d < shape.rank(); ++d) out.push_back(shape[d]);
    return out;
  };
  Json out{{"ranks", s.world()}, {"layout", s.describe(plan.sequence_parallel)}, {"minimum_ranks", plan.minimum_ranks}};
  out["axes"] = {{"pp", s.pp}, {"dp_replicate", s.dp_replicate}, {"dp_shard", s.dp_shard}, {"cp", s.cp}, {"tp", s.tp}};
  out["expert_axes"] = {{"pp", s.pp}, {"edp", s.edp}, {"ep", s.ep}, {"etp", s.etp}};
  out["groups"] = Json::object();
  for (const auto& [axes, groups] : plan.groups)
    for (const auto& axis : axes) out["groups"][axis] = groups;
  const auto at = places(plan, rank);
  for (std::size_t r = 0; r < plan.place_of.size(); ++r)
    if (rank < 0 || static_cast<int>(r) == rank) {
      out["place_of_rank"][std::to_string(r)] = plan.place_of[r];
      out["slice_of_rank"][std::to_string(r)] = plan.slice_of[r];
    }
  out["parameters"] = Json::array();
  for (const auto& part : plan.parts) {
    Json one{{"path", part.path}, {"layers", part.count}, {"shape", sizes(part.shape)}, {"layout", layout_name(part.layout)}};
    for (const std::size_t p : at)
      one["held"][std::to_string(p)] = {{"begin", sizes(part.boxes[p].begin)}, {"size", sizes(part.boxes[p].size)}};
    out["parameters"].push_back(std::move(one));
  }
  out["optimizer_on_disk"] = plan.optimizer_on_disk;
  out["totals"] = Json::array();
  for (const auto& [phase, of_place] : plan.totals)
    for (const std::size_t p : at)
      for (std::size_t slice = 0; slice < of_place[p].size(); ++slice) {
        if (rank >= 0 && static_cast<int>(slice) != plan.slice_of[static_cast<std::size_t>(rank)]) continue;
        const PlannedTotal& t = of_place[p][slice];
        out["totals"].push_back({{"phase", phase},
                                 {"place", p},
                                 {"slice", slice},
                                 {"parameters", t.parameters},
                                 {"trained", t.trained},
                                 {"value_bytes", t.state.held.values},
                                 {"gradient_bytes", t.state.held.gradients},
                                 {"optimizer_bytes", t.state.held.optimizer},
                                 {"gathered_bytes", t.state.gathered},
                                 {"other_gradient_bytes", t.state.second_gradients}});
      }
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace chorus
