// Ops that move whole rows. The summing ones add in a fixed order.
#pragma once
#include <chorus/tensor/autograd/node.h>
#include <chorus/tensor/ops/table_part.h>

namespace chorus {

/// table[ids[t]] for ids i32 [T]: [T, n]. The gradient is scattered into the table's sink; it can be deferred. Of a `part` of
/// a table, ids whose rows lie elsewhere give zeros and no gradient.
Tensor embedding(const Tensor& table, const Tensor& ids, const TablePart& part = {});
/// x[index[t]] for index i32 [T]; -1 gives a row of zeros.
Tensor gather_rows(const Tensor& x, const Tensor& index);
Tensor concat_rows(const Tensor& a, const Tensor& b);  ///< [m, n], [k, n] -> [m + k, n]
Tensor concat_cols(const Tensor& a, const Tensor& b);  ///< [T, m], [T, n] -> [T, m + n]
/// Mean of the rows [offsets[s], offsets[s+1]) of x, offsets i32 [S + 1]: [S, n]. An empty range gives zeros.
Tensor segment_mean(const Tensor& x, const Tensor& offsets);

}  // namespace chorus
