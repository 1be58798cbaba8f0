// Figures of a step over ranks.
#include <chorus/apps/step_report.h>
#include <chorus/parallel/group/threads.h>
#include <gtest/gtest.h>

#include <limits>

namespace chorus {
namespace {

TEST(StepReport, MemoryIsTheMostOfAnyRankAndFlopsAreOfAll) {
  // The second rank has the most at the end, the third the highest peak, the first the most before the step.
  const std::size_t now[] = {5, 9, 7}, peak[] = {20, 30, 40}, before[] = {100, 0, 50};
  std::array<StepReport, 3> reports;
  run_ranks(3, {}, [&](Group& world) {
    const auto r = static_cast<std::size_t>(world.rank());
    MemoryStats memory;
    memory.total = now[r], memory.peak_total = peak[r];
    memory.current[1] = now[r], memory.peak[1] = peak[r];
    memory.current[2] = 3 - r, memory.peak[2] = 3 - r;
    reports[r].flops = 1.5;
    report_over_ranks(reports[r], memory, before[r], world);
  });
  for (const StepReport& report : reports) {
    EXPECT_EQ(report.memory, 9u);
    EXPECT_EQ(report.memory_step_peak, 40u);
    EXPECT_EQ(report.memory_peak, 100u);
    EXPECT_EQ(report.memory_of[1], 9u);
    EXPECT_EQ(report.memory_peak_of[1], 40u);
    EXPECT_EQ(report.memory_of[2], 3u);
    EXPECT_EQ(report.memory_peak_of[2], 3u);
    EXPECT_EQ(report.memory_of[0], 0u);
    EXPECT_EQ(report.flops, 4.5);
  }
}

}  // namespace
}  // namespace chorus
