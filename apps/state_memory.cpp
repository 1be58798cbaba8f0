#include <chorus/apps/salm_builder.h>
#include <chorus/apps/state_memory.h>
#include <chorus/nn/optim/optimizer.h>

#include <algorithm>

namespace chorus {
namespace {

/// Elements of the root's buffers and of the unit with most, or of the two neighbours with most where work overlaps.
std::int64_t most_at_a_time(const StoreSize& size, bool trainable_only, bool overlap) {
  std::int64_t root = 0, most = 0;
  std::vector<std::pair<std::string, std::int64_t>> units;
  for (const auto& flat : size.flats) {
    const std::int64_t elements = flat.trainable || !trainable_only ? flat.elements : 0;
    if (flat.unit.empty()) {
      root += elements;
    } else {
      const auto known = std::ranges::find(units, flat.unit, &std::pair<std::string, std::int64_t>::first);
      known == units.end() ? units.push_back({flat.unit, elements}) : void(known->second += elements);
    }
  }
  for (std::size_t i = 0; i < units.size(); ++i)
    most = std::max(most, units[i].second + (overlap && i + 1 < units.size() ? units[i + 1].second : 0));
  return root + most;
}

}  // namespace

StateMemory state_memory(const RunConfig& config, const StoreSize& size, int rank, int ranks) {
  const Sharding sharding = sharding_of(config.parallel.sharding);
  const DType type = dtype_of_precision(config.trainer.precision);
  const StateBytes each = whole_state(type, state_arrays(config.optimizer));
  const StoreSize::Owned owned = size.owned(rank, ranks);
  const auto bytes = [](std::int64_t count, double of_one) { return static_cast<double>(count) * of_one; };
  StateMemory out;
  const bool all_values = sharding != Sharding::full;
  out.held.values = bytes(all_values ? size.trainable + size.frozen : owned.trainable + owned.frozen, each.values) +
                    bytes(size.buffers, static_cast<double>(size_of(wide(type))));
  out.held.optimizer = bytes(owned.trainable, each.optimizer);
  const auto& fsdp = config.parallel.fsdp;
  if (!all_values)
    out.gathered =
        bytes(fsdp.reshard_after_forward == "never" ? size.trainable + size.frozen : most_at_a_time(size, false, fsdp.overlap),
              each.values);
  if (sharding == Sharding::none || sharding == Sharding::optimizer || fsdp.defer_grad_sync) {
    out.held.gradients = bytes(sharding == Sharding::none ? size.trained : size.trainable, each.gradients);
    if (sharding != Sharding::none) out.second_gradients = bytes(owned.trainable, each.gradients);
  } else {
    out.held.gradients = bytes(owned.trainable, each.gradients);
    out.second_gradients = bytes(most_at_a_time(size, true, fsdp.overlap), each.gradients);
  }
  return out;
}

}  // namespace chorus
