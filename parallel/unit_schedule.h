// When a model reads the parameters of its units, as one walk through it shows: the same on all ranks and in all steps,
// whatever samples they have.
#pragma once
#include <chorus/nn/materialize.h>

#include <functional>
#include <unordered_map>

namespace chorus {

enum class Reshard : std::uint8_t { all_but_last, always, never };

struct UnitSchedule {
  struct Event {
    enum Kind : std::uint8_t {
      gather,   ///< the unit's values are read, and its rank doesn't have them
      reduce,   ///< its gradients are complete
      release,  ///< its values have been read for the last time
    } kind;
    int unit;
    friend bool operator==(const Event&, const Event&) = default;
  };
  std::vector<int> forward;  ///< units in the order in which they are gathered
  std::vector<int> kept;     ///< that still have their values when backward begins
  std::vector<Event> backward;
};

/// `unit_of`: the unit of each storage of values; unit `root` (-1: none) stays from its first reader to the end of backward.
/// `forward`: gives the loss of a batch without rows; nothing is computed with. `trains`: whether a unit has gradients.
UnitSchedule record_schedule(Context& context, const std::unordered_map<const Storage*, int>& unit_of,
                             const std::unordered_map<const Node*, int>& unit_of_leaf, int root, Reshard reshard,
                             const std::vector<bool>& trains, const std::function<Tensor()>& forward);

}  // namespace chorus
