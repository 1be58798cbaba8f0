#include <chorus/apps/dry_run.h>

#include <cstdio>

namespace chorus {

int run_dry_run(const Loaded<RunConfig>& loaded, std::int64_t measured_steps, int ranks) {
  const RunConfig& config = loaded.value;
  const auto say = [](const std::string& line) { std::printf("%s\n", line.c_str()); };
  std::printf("== configuration\n%s", resolved_toml(loaded).c_str());
  const DryRun plan = plan_run(config, say, ranks);
  if (ranks > 1)
    std::printf(
        "\n== layout\n%d ranks: %s\nParameters held, batches prepared and memory are those of one rank: the first one's part "
        "of "
        "the model, the heaviest microbatch of any.\n",
        ranks, config.parallel.layout(plan.layout).c_str());
  std::printf("\n== parameters\n%s", parameter_text(plan).c_str());
  std::printf("\n== batches, of the first epoch of each phase\n%s", batch_text(plan).c_str());
  std::printf("\n== memory, estimated\n%s", memory_text(plan).c_str());
  if (config.model.ctc_compressor)
    std::printf("  The decoder is taken to read one audio item per token: what a trained CTC head leaves, about.\n");
  std::printf("\n== memory beside the formulas\n%s", formula_text(plan).c_str());
  std::printf("figure dry_run.memory_peak %.2f MiB\n", plan.phases.back().run_peak / (1 << 20));
  std::fflush(stdout);
  if (measured_steps > 0) {
    std::printf("\n== memory of the first %lld steps of each phase, estimated and measured\n",
                static_cast<long long>(measured_steps));
    const DryRun shorter = plan_run(shortened(config, measured_steps, config.trainer.output_dir), {}, ranks);
    const auto measured = measure_run(config, measured_steps, {}, ranks);
    std::printf("%s", comparison_text(shorter, measured).c_str());
    std::printf("figure dry_run.memory_ratio %.3f\n", shorter.phases.back().run_peak / measured.back().run_peak);
  }
  return 0;
}

}  // namespace chorus
