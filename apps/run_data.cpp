#include <chorus/apps/run_data.h>

namespace chorus {

std::vector<ManifestEntry> training_entries(const RunConfig& config, const Say& say) {
  auto all = read_manifest(config.data.train, {}, config.content());
  if (config.content() == Content::text) return all;
  std::vector<ManifestEntry> entries;
  for (auto& entry : all) {
    try {
      fill_durations(std::span(&entry, 1));
      entries.push_back(std::move(entry));
    } catch (const Error& error) {
      if (say) say(std::string("dropped a recording: ") + error.what());
    }
  }
  return entries;
}

BatchPlanner make_planner(const RunConfig& config, const PhaseConfig& phase, const SampleMaker& maker) {
  std::function<std::int64_t(std::int64_t)> frames;
  if (config.model.perception)
    frames = [&frontend = maker.frontend()](std::int64_t samples) { return frontend.frames(samples); };
  return BatchPlanner(phase.batches.value_or(config.batches), maker.utterances(), config.trainer.seed,
                      config.features.sample_rate, frames);
}

}  // namespace chorus
