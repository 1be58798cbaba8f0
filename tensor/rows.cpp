#include <chorus/tensor/kernels/rope.h>
#include <chorus/tensor/rows.h>

namespace chorus {

std::int64_t Rows::longest() const {
  std::int64_t n = 0;
  for (std::int64_t s = 0; s < sequences(); ++s) n = std::max(n, length(s));
  return n;
}

Rows make_rows(Context& context, std::span<const std::int64_t> lengths, std::span<const std::int64_t> ids) {
  require(lengths.size() == ids.size(), "make_rows", lengths.size(), " lengths and ", ids.size(), " ids");
  std::vector<std::int32_t> offsets{0}, index, positions;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    require(lengths[s] >= 0 && offsets.back() + lengths[s] <= INT32_MAX, "make_rows", "sequence ", s, " has length ",
            lengths[s]);
    for (std::int32_t p = 0; p < lengths[s]; ++p) {
      index.push_back(static_cast<std::int32_t>(s));
      index.push_back(p);
      positions.push_back(p);
    }
    offsets.push_back(static_cast<std::int32_t>(offsets.back() + lengths[s]));
  }
  const auto sequences = static_cast<std::int64_t>(lengths.size()), rows = std::int64_t{offsets.back()};
  return {Tensor::of(context, {sequences + 1}, offsets), Tensor::of(context, {sequences}, ids),
          Tensor::of(context, {rows, 2}, index), Tensor::of(context, {rows}, positions),
          std::make_shared<kernel::RopeTables>()};
}

Rows with_lengths(const Rows& rows, std::span<const std::int64_t> lengths) {
  return make_rows(rows.offsets.context(), lengths, rows.ids.span<const std::int64_t>());
}

}  // namespace chorus
