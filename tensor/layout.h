// How a tensor lies on a mesh: data only. The plan that fills it and the code that acts on it live in parallel/.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <memory>
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

/// How a tensor lies along one axis of a mesh.
struct AxisPlacement {
  std::string axis;  ///< a mesh axis, or a factor of one ("tp", "tp.kv")
  Placement placement;
  std::int64_t whole = 0;  ///< size of a sharded dim over all ranks of the axis, of its first part; 0: not known
  int parts = 1;           ///< logical tensors that lie side by side in a sharded dim, each of them sharded: 3 for q, k, v
  friend bool operator==(const AxisPlacement&, const AxisPlacement&) = default;
};
/// Ordered, outer axis first: an inner axis divides what the outer ones left.
using Layout = std::vector<AxisPlacement>;

/// Rank `rank` of `size` owns [begin, end) of `whole` elements: uneven parts where it doesn't divide.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
};
constexpr Range shard_range(std::int64_t whole, int rank, int size) { return {whole * rank / size, whole * (rank + 1) / size}; }

std::ostream& operator<<(std::ostream& out, const Placement& placement);  ///< "shard(0)"
std::ostream& operator<<(std::ostream& out, const Layout& layout);        ///< "tp: shard(0), dp: copy"

}  // namespace chorus
