#include <chorus/apps/trainer.h>
#include <chorus/parallel/group/threads.h>

#include <mutex>

namespace chorus {

TrainingResult train_on_threads(const RunConfig& config, const TrainerHooks& hooks, int ranks) {
  require(ranks >= 1, "train", ranks, " ranks; at least 1 is needed");
  if (ranks == 1) return train(config, hooks);
  std::mutex one_at_a_time;
  TrainerHooks first = hooks, other;
  first.message = other.message = [&](const std::string& text) {
    const std::lock_guard lock(one_at_a_time);
    if (hooks.message) hooks.message(text);
  };
  first.start = [&](const StartReport& report) {
    const std::lock_guard lock(one_at_a_time);
    if (hooks.start) hooks.start(report);
  };
  first.step = [&](const StepReport& report) {
    const std::lock_guard lock(one_at_a_time);
    if (hooks.step) hooks.step(report);
  };
  if (hooks.evaluation)
    first.evaluation = [&](const EvaluationReport& report) {
      const std::lock_guard lock(one_at_a_time);
      hooks.evaluation(report);
    };
  if (hooks.memory)
    first.memory = [&](const MemoryReport& report) {
      const std::lock_guard lock(one_at_a_time);
      hooks.memory(report);
    };
  TrainingResult result;
  ThreadOptions options;
  options.time_limit = config.parallel.time_limit_seconds;
  options.record_folder = config.trainer.output_dir / "ranks";
  run_ranks(ranks, options, [&](Group& world) {
    const TrainingResult own = train(config, world.rank() == 0 ? first : other, world);
    if (world.rank() == 0) result = own;
  });
  return result;
}

}  // namespace chorus
