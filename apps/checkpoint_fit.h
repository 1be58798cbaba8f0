// Reading a checkpoint into a model, whole or not at all.
#pragma once
#include <chorus/apps/whole_tensors.h>
#include <chorus/io/checkpoint.h>

namespace chorus {

/// Fills all of these, one whole tensor after another. A checkpoint of another model is an error that lists what differs,
/// before anything is read: tensors that it lacks, tensors of the same groups ("model", "buffer" ...) that nobody wants, and
/// other shapes.
void read_parts(const Checkpoint& checkpoint, std::span<const NamedPart> parts, const ReadOptions& options = {});

}  // namespace chorus
