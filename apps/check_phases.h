#pragma once
#include <chorus/apps/run_folder.h>

namespace chorus {

/// What a later phase can't do is said before the first step of the first: patterns that match nothing, nothing to train, a
/// corruption without its token, batches that can't be made.
void check_phases(const RunConfig& config, const std::vector<ManifestEntry>& entries, const Frontend& frontend,
                  const RunInputs& inputs);

}  // namespace chorus
