#include <chorus/apps/run_data.h>

namespace chorus {

UsableEntries training_entries(const RunConfig& config, const Say& say) {
  return read_usable(config.data.inputs(), config.data.skip_bad_lines, config.content(), say);
}

BatchPlanner make_planner(const RunConfig& config, const PhaseConfig& phase, const SampleMaker& maker) {
  std::function<std::int64_t(std::int64_t)> frames;
  if (config.model.perception)
    frames = [&frontend = maker.frontend()](std::int64_t samples) { return frontend.frames(samples); };
  return BatchPlanner(phase.batches.value_or(config.batches), maker.utterances(), config.trainer.seed,
                      config.features.sample_rate, frames, config.data.mixing());
}

}  // namespace chorus
