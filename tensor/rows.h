// What the rows of a packed [tokens, features] tensor are. Batches are never padded: sequences lie end to end.
#pragma once
#include <chorus/tensor/tensor.h>

#include <memory>

namespace chorus {

namespace kernel {
struct RopeTables;
}

/// Sequence s owns rows [offsets[s], offsets[s+1]). All tensors are on the CPU.
struct Rows {
  Tensor offsets;    ///< i32 [sequences + 1], from 0 to the number of rows
  Tensor ids;        ///< i64 [sequences]: sample ids, first part of every random counter
  Tensor index;      ///< i32 [rows, 2]: (sequence, position in it) of each row
  Tensor positions;  ///< i32 [rows]: positions for rotary embeddings; equals the position in the sequence unless set otherwise
  std::shared_ptr<kernel::RopeTables> rope_tables{};  ///< what `rope` has made for these rows, found by the address of
                                                      ///< `positions`: after the first `rope` a change needs a new tensor.
                                                      ///< Layers and copies share it, so one thread at a time may use them.

  std::int64_t sequences() const { return ids.numel(); }
  std::int64_t count() const { return index.size(0); }
  std::int64_t begin(std::int64_t s) const { return offsets.as<std::int32_t>()[s]; }
  std::int64_t length(std::int64_t s) const { return begin(s + 1) - begin(s); }
  std::int64_t longest() const;
};

/// Where a tensor lies in a packed activation that is larger: its row r is row first_row + r of the activation's `Rows`, its
/// column c feature first_feature + c.
struct Window {
  std::int64_t first_row = 0, first_feature = 0;
};

/// Rows of sequences with these lengths (0 is allowed); positions count from 0 in each.
Rows make_rows(Context& context, std::span<const std::int64_t> lengths, std::span<const std::int64_t> ids);
/// The same sequences with other lengths: what subsampling makes of `rows`.
Rows with_lengths(const Rows& rows, std::span<const std::int64_t> lengths);

}  // namespace chorus
