#include <chorus/apps/commands.h>
#include <chorus/apps/layout_check.h>
#include <chorus/apps/layout_plan.h>

#include <cstdio>

namespace chorus {

int run_plan_layout(const PlanLayoutOptions& options) {
  if (options.rank >= options.ranks)
    throw ConfigError("--rank " + std::to_string(options.rank) + " of " + std::to_string(options.ranks) +
                      " ranks: they are counted from 0");
  const auto loaded = load_config<RunConfig>(options.file, options.overrides);
  check_paths(loaded);
  check_layout(loaded, options.ranks);
  // What is left out of the data isn't this command's business, and would spoil JSON.
  const LayoutPlan plan = plan_layout(loaded.value, options.ranks, {});
  std::printf("%s", (options.json ? layout_json(plan, options.rank) : layout_text(plan, options.rank)).c_str());
  return 0;
}

}  // namespace chorus
