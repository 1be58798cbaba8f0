// Ranks as a grid. The dense axes, slowest first: pp, dp_replicate, dp_shard, cp, tp; over the same ranks of a stage the expert
// grid: edp, ep, etp. tp is innermost, so its ranks are neighbours.
#pragma once
#include <chorus/parallel/group/group.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace chorus {

/// One axis, or several flattened into one, as one rank sees it.
struct Axis {
  std::string name;
  int size = 1, rank = 0;
  Group* group = nullptr;   ///< null where nothing is to move: then only shapes and layouts are made
  bool split_sums = false;  ///< what becomes `sum` is cut at random, so that nothing which must not meet a sum goes unnoticed
  std::uint64_t split_seed = 0;
  bool overlap = false;  ///< whether gradients are exchanged while weight gradients are computed
};

/// Sizes as asked for; 0 means "what is left": world / (tp * cp * pp) for dp, dp / dp_replicate for dp_shard.
struct MeshSizes {
  int dp = 0, dp_replicate = 1, tp = 1, pp = 1, cp = 1, ep = 1, etp = 1;
  friend bool operator==(const MeshSizes&, const MeshSizes&) = default;
};

/// All sizes known.
struct MeshShape {
  int pp = 1, dp_replicate = 1, dp_shard = 1, cp = 1, tp = 1;
  int edp = 1, ep = 1, etp = 1;
  int world() const { return pp * dp_replicate * dp_shard * cp * tp; }
  int dp() const { return dp_replicate * dp_shard; }
  /// "TP2 SP DP2": the axes with more than one rank, innermost first; "1 rank" for none.
  std::string describe(bool sequence_parallel = false) const;
};

/// Ranks that these sizes need at least: pp * lcm(tp * cp, ep * etp).
int minimum_ranks(const MeshSizes& sizes);

/// A size that can't be honoured: its name in configurations ("tp_size") and why.
struct WrongSize {
  std::string name, why;
};
/// What `mesh_shape` would refuse, if anything.
std::optional<WrongSize> wrong_size(const MeshSizes& sizes, int world);

/// Errors name the sizes that don't fit together: world no multiple of tp * cp * pp or of ep * etp * pp, a dp other than what
/// is left, a dp_replicate that doesn't divide it.
MeshShape mesh_shape(const MeshSizes& sizes, int world);

/// The flattened axes of a mesh: name, and which axes of one grid they span, outermost first.
struct AxisSpan {
  const char* name;
  std::vector<std::string> axes;
  bool expert = false;
};
/// pp, dp_replicate, dp_shard, cp, tp, edp, ep, etp and what is made of them: dp, dp_cp, dp_shard_cp, tp_cp, model (pp, tp),
/// stage (dp, cp, tp), world.
const std::vector<AxisSpan>& axis_spans();

/// Where rank `rank` stands on axis `name`, and the ranks that it works with there, in order.
struct AxisPeers {
  int index = 0;
  std::vector<int> ranks;
};
AxisPeers axis_peers(const MeshShape& shape, const std::string& name, int rank);

/// The groups of one rank. Made by all ranks of `world` together; it must outlive the mesh.
class Mesh {
 public:
  Mesh(Group& world, const MeshShape& shape);
  /// As rank `rank` would see it, without any group: to look at and to check plans.
  Mesh(const MeshShape& shape, int rank);
  /// As above, but with groups whose other ranks say nothing (group/silent.h): to find out what a step takes.
  static std::unique_ptr<Mesh> silent(const MeshShape& shape, int rank);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  const MeshShape& shape() const { return shape_; }
  int rank() const { return rank_; }
  bool alone() const { return shape_.world() == 1; }
  /// An unknown name is an error that lists the known ones.
  const Axis& axis(const std::string& name) const;
  /// Cuts an axis into an outer and an inner one of `outer` and size / outer ranks: "tp.kv", "tp.rep". A collective call; the
  /// same factors are made once.
  void factor(const std::string& axis, int outer, const std::string& outer_name, const std::string& inner_name);
  /// See Axis::overlap; bits are the same.
  void overlap_exchanges();
  /// For the parity harness: see Axis::split_sums.
  void split_sums(std::uint64_t seed);

 private:
  Mesh(const MeshShape& shape, int rank, bool silent);
  void add(const std::string& name, const AxisPeers& peers);
  MeshShape shape_;
  int rank_ = 0;
  Group* world_ = nullptr;
  bool overlap_ = false, silent_ = false;
  std::optional<std::uint64_t> split_seed_;
  std::map<std::string, Axis> axes_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace chorus
