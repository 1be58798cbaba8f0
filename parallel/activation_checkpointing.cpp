#include <chorus/nn/path_patterns.h>
#include <chorus/parallel/activation_checkpointing.h>
#include <chorus/tensor/autograd/recompute.h>

namespace chorus {

std::string_view name(Recompute mode) {
  switch (mode) {
    case Recompute::none: return "none";
    case Recompute::selective: return "selective";
    default: return "full";
  }
}

Recompute recompute_mode(const std::string& text) {
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full})
    if (text == name(mode)) return mode;
  fail("activation checkpointing", "'", text, "'; none, selective and full are there");
}

void detail::checkpoint_activations(const std::vector<std::pair<std::string, Unit*>>& units, const std::string& pattern,
                                    Recompute mode, const std::shared_ptr<ActivationFile>& file) {
  bool hit = false;
  for (const auto& [path, unit] : units) {
    if (!path_matches(pattern, path)) continue;
    hit = true;
    if (mode == Recompute::none) continue;
    require(!unit->wrap, "activation checkpointing", path, " is wrapped already, by '", pattern,
            "' a second time or by what must come later");
    RecomputeOptions options{.name = path, .kept_ops = {}, .file = file};
    if (mode == Recompute::selective) options.kept_ops = {"attention", "relative_attention"};
    unit->wrap = [options](const std::function<Tensor(Tensor)>& body, Tensor x) {
      return recomputed(options, body, std::move(x));
    };
  }
  require(hit, "activation checkpointing", "pattern '", pattern, "' matches no unit");
}

}  // namespace chorus
