#include <chorus/apps/open_run.h>
#include <chorus/core/cpu.h>
#include <omp.h>

#include <cstdio>

namespace chorus {

LoadedRun open_run(const std::filesystem::path& folder, int threads) {
  omp_set_num_threads(threads > 0 ? threads : compute_threads());
  return load_run(folder, [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
}

TranscriptionOptions transcription_options(const HearingOptions& hearing, const RunConfig& config) {
  const CutOptions cut{hearing.chunk_seconds, hearing.tail_seconds, hearing.quiet_seconds, hearing.max_seconds};
  return {.chunks = chunk_options(cut, config), .batch_seconds = hearing.batch_seconds.value_or(60)};
}

std::string totals_line(const TranscriptionTotals& totals) {
  char text[200];
  std::snprintf(text, sizeof text, "%lld recording%s, %.1f s of sound in %.2f s (real-time factor %.3f), %lld segment%s",
                static_cast<long long>(totals.recordings), totals.recordings == 1 ? "" : "s", totals.sound_seconds,
                totals.seconds, totals.sound_seconds > 0 ? totals.seconds / totals.sound_seconds : 0.0,
                static_cast<long long>(totals.segments), totals.segments == 1 ? "" : "s");
  return text + (totals.failed ? "; " + std::to_string(totals.failed) + " failed" : std::string());
}

}  // namespace chorus
