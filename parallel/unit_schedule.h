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
  std::vector<int> kept;     ///< that still have their values when backward begins, since it reads them
  std::vector<Event> backward;
};

struct WalkedUnits {
  std::vector<std::string> paths;
  std::vector<bool> trains;                           ///< whether a unit has gradients
  std::unordered_map<const Storage*, int> of_values;  ///< the unit whose values lie there
  std::unordered_map<const Node*, int> of_leaf;
  int root = -1;  ///< a unit that stays from its first reader to the end of backward; -1: none
};

/// `forward`: gives the loss of a batch without rows; nothing is computed with. An op that reads two units but the root is an
/// error that names both: gathering one could let go of the other.
UnitSchedule record_schedule(Context& context, const WalkedUnits& units, Reshard reshard,
                             const std::function<Tensor()>& forward);

}  // namespace chorus
