// First values of a run taken from another run's weights: a decoder that read text, an encoder that learned to spell.
#pragma once
#include <chorus/apps/run_folder.h>
#include <chorus/apps/salm_builder.h>

#include <functional>

namespace chorus {

/// For each of config.init_from, in order: reads the newest intact checkpoint of its run into the parameters and buffers whose
/// paths match one of its `keep`. Only weights are taken, converted to this run's type; optimizer, schedule and data start
/// afresh. Matching tensors that the other run lacks stay as they are. `report` gets one line per run: how many tensors and
/// values were found, which were missing, and whether the front ends differ.
/// Errors: no checkpoint; a pattern that matches nothing here, or nothing that the other run has; another shape; tensors
/// whose rows are pieces of the vocabulary when the two runs' tokenizers differ.
void init_from_runs(const RunConfig& config, const RunInputs& inputs, const BuiltSalm& built,
                    const std::function<void(const std::string&)>& report);

}  // namespace chorus
