#include <chorus/apps/check_phases.h>
#include <chorus/apps/run_data.h>
#include <chorus/apps/salm_builder.h>
#include <chorus/nn/path_patterns.h>

#include <algorithm>

namespace chorus {

void check_phases(const RunConfig& config, const std::vector<ManifestEntry>& entries, const Frontend& frontend,
                  const RunInputs& inputs) {
  Salm declared(sized_config(config, inputs.tokenizer), inputs.tokenizer.size() + 1);
  std::vector<std::string> paths, all;
  for_each_param(declared, [&](const std::string& path, const Param&) { paths.push_back(path); });
  all = paths;
  for_each_buffer(declared, [&](const std::string& path, const Buffer&) { all.push_back(path); });
  const SampleMaker maker(entries, frontend, inputs.tokenizer,
                          {.seed = 0, .training = false, .content = config.content(), .spec_augment = {}, .cache_bytes = 0});
  for (std::size_t i = 0; i < config.phases.size(); ++i) {
    const PhaseConfig& phase = config.phases[i];
    const std::string key = "phases[" + std::to_string(i) + "].";
    const PathPatterns freeze(key + "freeze_params", phase.freeze_params, paths);
    const PathPatterns prevent(key + "prevent_freeze_params", phase.prevent_freeze_params, paths);
    const bool trains =
        std::any_of(paths.begin(), paths.end(), [&](const auto& p) { return !freeze.match(p) || prevent.match(p); });
    require(trains, "train", key, "freeze_params leaves nothing to train");
    require(phase.token_corruption == 0 || inputs.tokenizer.has("<mask>"), "train", key, "token_corruption is ",
            phase.token_corruption, ", but the tokenizer has no piece <mask> among its ", inputs.tokenizer.size());
    if (i > 0) (void)PathPatterns(key + "keep", phase.keep, all);
    (void)make_planner(config, phase, maker);
  }
}

}  // namespace chorus
