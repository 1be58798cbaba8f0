// What the commands that use a trained model begin with.
#pragma once
#include <chorus/apps/commands.h>
#include <chorus/apps/transcription.h>

namespace chorus {

/// Loads the newest checkpoint of a run; what is odd about it goes to stderr. `threads` 0: the cores of the machine.
LoadedRun open_run(const std::filesystem::path& folder, int threads);

TranscriptionOptions transcription_options(const HearingOptions& hearing, const RunConfig& config);

/// "3 recordings, 62.3 s of sound in 1.90 s (real-time factor 0.030), 12 segments; 1 failed".
std::string totals_line(const TranscriptionTotals& totals);

}  // namespace chorus
