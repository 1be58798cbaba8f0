#include <chorus/core/error.h>
#include <chorus/parallel/group/silent.h>
#include <chorus/parallel/group/solo.h>
#include <chorus/parallel/mesh.h>

#include <algorithm>
#include <numeric>
#include <sstream>

namespace chorus {
namespace {

/// Axis names and sizes of one grid, outermost first.
using Grid = std::vector<std::pair<std::string, int>>;

Grid grid(const MeshShape& s, bool expert) {
  if (expert) return {{"pp", s.pp}, {"edp", s.edp}, {"ep", s.ep}, {"etp", s.etp}};
  return {{"pp", s.pp}, {"dp_replicate", s.dp_replicate}, {"dp_shard", s.dp_shard}, {"cp", s.cp}, {"tp", s.tp}};
}

template <class... Parts>
std::string joined(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

}  // namespace

std::string MeshShape::describe(bool sequence_parallel) const {
  if (world() == 1) return "1 rank";
  std::string out;
  const auto say = [&out](const char* axis, int size) {
    if (size == 1) return;
    if (!out.empty()) out += ' ';
    out += axis;
    out += std::to_string(size);
  };
  say("TP", tp);
  if (sequence_parallel && tp > 1) out += " SP";
  say("CP", cp);
  say("EP", ep);
  say("ETP", etp);
  say("PP", pp);
  if (dp_replicate > 1 && dp_shard > 1) {
    say("DP", dp_replicate);
    out += "x";
    out += std::to_string(dp_shard);
  } else {
    say("DP", dp());
  }
  return out;
}

int minimum_ranks(const MeshSizes& s) { return s.pp * std::lcm(s.tp * s.cp, s.ep * s.etp); }

std::optional<WrongSize> wrong_size(const MeshSizes& sizes, int world) {
  const auto [dp, replicate, tp, pp, cp, ep, etp] = sizes;
  for (const auto& [name, size] : {std::pair{"dp_replicate_size", replicate},
                                   {"tp_size", tp},
                                   {"pp_size", pp},
                                   {"cp_size", cp},
                                   {"ep_size", ep},
                                   {"etp_size", etp}})
    if (size < 1) return WrongSize{name, joined(name, " is ", size, "; at least 1 is needed")};
  if (dp < 0) return WrongSize{"dp_size", joined("dp_size is ", dp, "; 0 means what is left")};
  const int model = tp * cp * pp;
  if (world % model != 0)
    return WrongSize{tp > 1   ? "tp_size"
                     : cp > 1 ? "cp_size"
                              : "pp_size",
                     joined(world, " ranks are no multiple of tp_size * cp_size * pp_size = ", tp, " * ", cp, " * ", pp, " = ",
                            model, "; these sizes need at least ", minimum_ranks(sizes))};
  const int left = world / model;
  if (dp != 0 && dp != left)
    return WrongSize{"dp_size", joined("dp_size is ", dp, ", but ", world, " ranks over tp_size * cp_size * pp_size = ", model,
                                       " leave ", left)};
  if (left % replicate != 0)
    return WrongSize{"dp_replicate_size",
                     joined("dp_replicate_size ", replicate, " doesn't divide the ", left, " data-parallel ranks")};
  if (world % (ep * etp * pp) != 0)
    return WrongSize{ep > 1 ? "ep_size" : "etp_size",
                     joined(world, " ranks are no multiple of ep_size * etp_size * pp_size = ", ep, " * ", etp, " * ", pp,
                            " = ", ep * etp * pp, "; these sizes need at least ", minimum_ranks(sizes))};
  return std::nullopt;
}

MeshShape mesh_shape(const MeshSizes& sizes, int world) {
  if (const auto wrong = wrong_size(sizes, world)) fail("mesh", wrong->why);
  const auto [dp, replicate, tp, pp, cp, ep, etp] = sizes;
  const int left = world / (tp * cp * pp);
  return {.pp = pp,
          .dp_replicate = replicate,
          .dp_shard = left / replicate,
          .cp = cp,
          .tp = tp,
          .edp = world / (ep * etp * pp),
          .ep = ep,
          .etp = etp};
}

const std::vector<AxisSpan>& axis_spans() {
  static const std::vector<AxisSpan> spans{
      {"pp", {"pp"}},
      {"dp_replicate", {"dp_replicate"}},
      {"dp_shard", {"dp_shard"}},
      {"cp", {"cp"}},
      {"tp", {"tp"}},
      {"dp", {"dp_replicate", "dp_shard"}},
      {"dp_cp", {"dp_replicate", "dp_shard", "cp"}},
      {"dp_shard_cp", {"dp_shard", "cp"}},
      {"tp_cp", {"cp", "tp"}},
      {"model", {"pp", "tp"}},
      {"stage", {"dp_replicate", "dp_shard", "cp", "tp"}},
      {"world", {"pp", "dp_replicate", "dp_shard", "cp", "tp"}},
      {"edp", {"edp"}, true},
      {"ep", {"ep"}, true},
      {"etp", {"etp"}, true},
  };
  return spans;
}

AxisPeers axis_peers(const MeshShape& shape, const std::string& name, int rank) {
  const auto span = std::find_if(axis_spans().begin(), axis_spans().end(), [&](const auto& s) { return s.name == name; });
  if (span == axis_spans().end()) {
    std::string known;
    for (const auto& s : axis_spans()) (known += known.empty() ? "" : ", ") += s.name;
    fail("mesh", "there is no axis '", name, "'; ", known, " are there");
  }
  require(rank >= 0 && rank < shape.world(), "mesh", "rank ", rank, " of ", shape.world());
  const Grid axes = grid(shape, span->expert);
  const auto spanned = [&](const std::string& axis) {
    return std::find(span->axes.begin(), span->axes.end(), axis) != span->axes.end();
  };
  std::vector<int> peers{0};  // offsets from the first of them, in order
  int own = rank, first = rank, stride = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {  // innermost first
    const auto& [axis_name, size] = *axis;
    if (spanned(axis_name)) {
      std::vector<int> more;
      for (int i = 0; i < size; ++i)
        for (const int p : peers) more.push_back(p + i * stride);
      peers = std::move(more);
      first -= own % size * stride;
    }
    own /= size;
    stride *= size;
  }
  AxisPeers out;
  for (const int p : peers) out.ranks.push_back(first + p);
  out.index = static_cast<int>(std::find(out.ranks.begin(), out.ranks.end(), rank) - out.ranks.begin());
  return out;
}

Mesh::Mesh(Group& world, const MeshShape& shape) : shape_(shape), rank_(world.rank()), world_(&world) {
  require(world.size() == shape.world(), "mesh", "a mesh of ", shape.world(), " ranks over a group of ", world.size());
  for (const auto& span : axis_spans()) add(span.name, axis_peers(shape, span.name, rank_));
}

Mesh::Mesh(const MeshShape& shape, int rank) : Mesh(shape, rank, false) {}

std::unique_ptr<Mesh> Mesh::silent(const MeshShape& shape, int rank) {
  return std::unique_ptr<Mesh>(new Mesh(shape, rank, true));
}

Mesh::Mesh(const MeshShape& shape, int rank, bool silent) : shape_(shape), rank_(rank), silent_(silent) {
  for (const auto& span : axis_spans()) add(span.name, axis_peers(shape, span.name, rank));
}

void Mesh::add(const std::string& name, const AxisPeers& peers) {
  Axis axis{.name = name, .size = static_cast<int>(peers.ranks.size()), .rank = peers.index};
  if (world_ || silent_) {
    // Axes of one rank need no call, and all ranks agree on which those are.
    std::unique_ptr<Group> group;
    if (axis.size == 1)
      group = std::make_unique<SoloGroup>(GroupOptions{}, name);
    else if (world_)
      group = world_->split(peers.ranks.front(), peers.index, name);
    else
      group = std::make_unique<SilentGroup>(name, peers.index, peers.ranks);
    groups_.push_back(std::move(group));
    axis.group = groups_.back().get();
  }
  axis.overlap = overlap_;
  axis.split_sums = split_seed_.has_value();
  axis.split_seed = split_seed_.value_or(0);
  axes_.emplace(name, axis);
}

const Axis& Mesh::axis(const std::string& name) const {
  const auto found = axes_.find(name);
  if (found != axes_.end()) return found->second;
  std::string known;
  for (const auto& [other, axis] : axes_) (known += known.empty() ? "" : ", ") += other;
  fail("mesh", "there is no axis '", name, "'; ", known, " are there");
}

void Mesh::factor(const std::string& name, int outer, const std::string& outer_name, const std::string& inner_name) {
  if (const auto known = axes_.find(outer_name); known != axes_.end()) {
    require(known->second.size == outer, "mesh", outer_name, " has ", known->second.size, " ranks; another plan wants ", outer);
    return;
  }
  const Axis& whole = axis(name);
  require(outer >= 1 && whole.size % outer == 0, "mesh", name, " of ", whole.size, " ranks has no factor ", outer);
  const AxisPeers line = axis_peers(shape_, name, rank_);
  const int inner = whole.size / outer, at = whole.rank;
  AxisPeers slow{at / inner, {}}, fast{at % inner, {}};
  for (int i = 0; i < outer; ++i) slow.ranks.push_back(line.ranks[static_cast<std::size_t>(i * inner + at % inner)]);
  for (int i = 0; i < inner; ++i) fast.ranks.push_back(line.ranks[static_cast<std::size_t>(at / inner * inner + i)]);
  add(outer_name, slow);
  add(inner_name, fast);
}

void Mesh::overlap_exchanges() {
  overlap_ = true;
  for (auto& [name, axis] : axes_) axis.overlap = true;
}

void Mesh::split_sums(std::uint64_t seed) {
  split_seed_ = seed;
  for (auto& [name, axis] : axes_) axis.split_sums = true, axis.split_seed = seed;
}

}  // namespace chorus
