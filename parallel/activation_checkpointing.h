// Which units of a model keep only their input for backward, as data: a pattern and a mode.
#pragma once
#include <chorus/nn/module.h>

#include <memory>

namespace chorus {

class ActivationFile;

/// What backward computes again. `full`: all of a unit, which keeps its input. `selective`: as full, but the results of
/// attention (output and log-sum-exp) are kept too, so that attention isn't computed again.
enum class Recompute { none, selective, full };
std::string_view name(Recompute mode);
/// Of "none", "selective" or "full"; an error for other names.
Recompute recompute_mode(const std::string& name);

namespace detail {
void checkpoint_activations(const std::vector<std::pair<std::string, Unit*>>& units, const std::string& pattern, Recompute mode,
                            const std::shared_ptr<ActivationFile>& file);
}  // namespace detail

/// Wraps the units of `module` whose path ("layers.0.unit") matches `pattern` (path_matches). With a `file` what they keep
/// waits there for backward. Before anything else wraps a unit. Errors: a pattern that matches no unit, a unit that is wrapped
/// already.
template <class M>
void checkpoint_activations(M& module, const std::string& pattern, Recompute mode,
                            const std::shared_ptr<ActivationFile>& file = nullptr) {
  std::vector<std::pair<std::string, Unit*>> units;
  visit_fields(module, "", [&]<class Leaf>(const std::string& path, Leaf& leaf) {
    if constexpr (std::is_same_v<Leaf, Unit>) units.push_back({path, &leaf});
  });
  detail::checkpoint_activations(units, pattern, mode, file);
}

}  // namespace chorus
