// Who holds what of a run's model on a mesh of ranks: known from shapes alone, without groups and without memory for
// parameters.
#pragma once
#include <chorus/apps/state_memory.h>
#include <chorus/nn/param.h>

#include <functional>
#include <string>
#include <vector>

namespace chorus {

/// Axes along which ranks form the same groups of more than one, and those groups.
struct PlannedGroups {
  std::vector<std::string> axes;
  std::vector<std::vector<int>> groups;
};

/// Parameters that lie alike: one, or one of each layer.
struct PlannedPart {
  std::string path;  ///< with '*' for the layer's number where `count` layers are alike
  int count = 1;
  Shape shape;  ///< of the whole parameter
  Layout layout;
  std::vector<Box> boxes;  ///< by place
};

/// What a rank holds while a phase trains.
struct PlannedTotal {
  std::int64_t parameters = 0;  ///< elements of its part of the model, whatever data-parallel ranks share out of it
  std::int64_t trained = 0;     ///< of those, the ones that the phase trains
  StateMemory state;
};
struct PlannedTotals {
  std::string phase;
  std::vector<std::vector<PlannedTotal>> of_place;  ///< by slice
};

/// What lies where in the model is listed by place, the rank's index on axis "model". Ranks at a place hold the same, unless
/// data-parallel ranks share it out: then each has a slice, which are numbered along axis "dp_shard_cp".
struct LayoutPlan {
  MeshShape shape;
  bool sequence_parallel = false;
  std::string sharding = "none";
  bool optimizer_on_disk = false;
  int minimum_ranks = 1;
  std::vector<int> place_of, slice_of;  ///< of each rank; slices are all 0 without sharding
  std::vector<PlannedGroups> groups;
  std::vector<PlannedPart> parts;
  std::vector<PlannedTotals> totals;
};

/// Errors are those of the trainer's start: sizes that don't fit together, heads that don't divide, placements that must not
/// meet. Without a tokenizer_model the training texts are read, since the vocabulary follows from them; `say` is told what is
/// left out of them.
LayoutPlan plan_layout(const RunConfig& config, int ranks, const std::function<void(const std::string&)>& say);

/// For people. rank >= 0: what this rank holds; -1: what all do.
std::string layout_text(const LayoutPlan& plan, int rank);
/// One JSON object of the same.
std::string layout_json(const LayoutPlan& plan, int rank);

}  // namespace chorus
