#include <chorus/apps/run_data.h>

#include <sstream>

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

std::string idle_ranks_text(const RunConfig& config, std::int64_t phase, std::int64_t idle, int ranks, std::int64_t samples) {
  const auto& own = config.phases[static_cast<std::size_t>(phase)].batches;
  const BatchConfig& batches = own ? *own : config.batches;
  std::ostringstream text;
  text << idle << " of " << ranks << " data-parallel ranks had no sample in a batch of " << samples
       << " and had nothing to do but wait, which isn't said again; larger batches ("
       << (own ? "phases[" + std::to_string(phase) + "]." : "") << "batches.";
  if (batches.global_batch_size > 0) text << "global_batch_size, now " << batches.global_batch_size;
  if (batches.batch_frames > 0) text << "batch_frames, now " << batches.batch_frames;
  if (batches.batch_tokens > 0) text << "batch_tokens, now " << batches.batch_tokens;
  if (batches.batch_seconds > 0) text << "batch_seconds, now " << batches.batch_seconds;
  text << ") or fewer ranks (parallel.dp_size) give each some";
  return text.str();
}

}  // namespace chorus
