// How a parameter lies on a mesh: data only. The plan that fills it and the code that acts on it live in parallel/.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace chorus {

/// How one tensor lies along one mesh axis, and by duality how its gradient lies there.
struct Placement {
  enum Kind : std::uint8_t {
    same_kind,   ///< equal on all ranks, gradient equal on all ranks
    copy_kind,   ///< equal on all ranks, gradient still to be summed
    sum_kind,    ///< the value is the sum over ranks
    shard_kind,  ///< ranks own consecutive parts of one dim
  } kind = same_kind;
  int dim = -1;  ///< shard only
  friend bool operator==(Placement, Placement) = default;
};
namespace placement {
inline constexpr Placement same{Placement::same_kind};
inline constexpr Placement copy{Placement::copy_kind};
inline constexpr Placement sum{Placement::sum_kind};
constexpr Placement shard(int dim) { return {Placement::shard_kind, dim}; }

/// Where the gradient of a tensor with placement p lies.
constexpr Placement dual(Placement p) { return p == copy ? sum : p == sum ? copy : p; }
static_assert(dual(dual(copy)) == copy && dual(shard(1)) == shard(1) && dual(same) == same);
}  // namespace placement

struct AxisPlacement {
  std::string axis;  ///< a mesh axis, or a factor of one ("tp", "tp.kv")
  Placement placement;
};
/// Ordered, outer axis first; axes that are absent are `copy`.
using Layout = std::vector<AxisPlacement>;

}  // namespace chorus
