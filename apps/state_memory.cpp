#include <chorus/apps/salm_builder.h>
#include <chorus/apps/state_memory.h>
#include <chorus/nn/optim/optimizer.h>

#include <algorithm>

namespace chorus {
namespace {

/// The sum over the root's buffers and over those of the unit with most, or of the two neighbours with most where work
/// overlaps; `of` gives a buffer's bytes.
template <class F>
double most_at_a_time(const StoreSize& size, bool overlap, const F& of) {
  double root = 0, most = 0;
  std::vector<std::pair<std::string, double>> units;
  for (const auto& flat : size.flats) {
    if (flat.unit.empty()) {
      root += of(flat);
    } else {
      const auto known = std::ranges::find(units, flat.unit, &std::pair<std::string, double>::first);
      known == units.end() ? units.push_back({flat.unit, of(flat)}) : void(known->second += of(flat));
    }
  }
  for (std::size_t i = 0; i < units.size(); ++i)
    most = std::max(most, units[i].second + (overlap && i + 1 < units.size() ? units[i + 1].second : 0));
  return root + most;
}

}  // namespace

StateMemory state_memory(const RunConfig& config, const StoreSize& size, int rank, int ranks) {
  const Sharding sharding = sharding_of(config.parallel.sharding);
  const DType type = wide(dtype_of_precision(config.trainer.precision));
  const bool masters = precision_of(config.trainer, config.model).masters;
  const StoreSize::Owned owned = size.owned(rank, ranks);
  const auto bytes = [&](std::int64_t count) { return static_cast<double>(count) * static_cast<double>(size_of(type)); };
  StateMemory out;
  const bool all_values = sharding != Sharding::full;
  out.held.values = (all_values ? size.trainable : owned.trainable).value_bytes(type) +
                    (all_values ? size.frozen : owned.frozen).value_bytes(type) + bytes(size.buffers);
  out.held.optimizer = bytes(owned.trainable.all * state_arrays(config.optimizer) + (masters ? owned.trainable.narrow : 0));
  const auto& fsdp = config.parallel.fsdp;
  if (!all_values && fsdp.reshard_after_forward == "never")
    out.gathered = size.trainable.value_bytes(type) + size.frozen.value_bytes(type);
  else if (!all_values)
    out.gathered = most_at_a_time(size, fsdp.overlap, [](const auto& flat) {
      return static_cast<double>(flat.elements) * static_cast<double>(size_of(flat.values));
    });
  if (sharding == Sharding::none || sharding == Sharding::optimizer || fsdp.defer_grad_sync) {
    out.held.gradients = bytes(sharding == Sharding::none ? size.trained : size.trainable.all);
    if (sharding != Sharding::none) out.second_gradients = bytes(owned.trainable.all);
  } else {
    out.held.gradients = bytes(owned.trainable.all);
    out.second_gradients =
        most_at_a_time(size, fsdp.overlap, [&](const auto& flat) { return flat.trainable ? bytes(flat.elements) : 0; });
  }
  return out;
}

}  // namespace chorus
