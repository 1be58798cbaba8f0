// From the parts that ranks have of a parameter-shaped tensor (a value, a gradient, a moment) to the whole, and back.
#pragma once
#include <chorus/nn/materialize.h>
#include <chorus/parallel/mesh.h>

namespace chorus {

/// All that this rank holds of a parameter, [Param::box], of which it owns `owned` [Entry::count]. Ranks that share out the
/// store call it together. The same memory where it isn't shared out.
Tensor held(const Tensor& owned, const ParamStore::Entry& entry, const ParamStore& store, const Mesh& mesh);
/// The other way round: copies what this rank owns.
void take_owned(const Tensor& held, const ParamStore::Entry& entry, const Tensor& owned);

/// Whether ranks of the model hold different parts.
bool divided(const Param& param);
/// The whole tensor of which every rank of the model holds `part` [Param::box]: on all ranks.
Tensor merged(const Tensor& part, const Param& param, const Mesh& mesh);
/// The part of a whole tensor that this rank holds.
Tensor part_of(const Tensor& whole, const Param& param);

}  // namespace chorus
