// Reading a checkpoint into a model, whole or not at all.
#pragma once
#include <chorus/io/checkpoint.h>

namespace chorus {

/// Fills all tensors. A checkpoint of another model is an error that lists what differs, before anything is read: tensors that
/// it lacks, tensors of the same groups ("model", "buffer" ...) that nobody wants, and other shapes.
void read_tensors(const Checkpoint& checkpoint, std::span<const std::pair<std::string, Tensor>> tensors,
                  const ReadOptions& options = {});

}  // namespace chorus
