// The position term of relative attention (Dai et al. 2019, section 3.3), block by block. For one vector's queries and a
// block of keys the offsets i - j fill a band; products with the band's rows of p give `raw`, whose row a (a query) holds
// offset after offset. Score (a, b) is raw[a][lanes - 1 - a + b]: the "relative shift" is an unaligned load.
#pragma once
#include <chorus/tensor/kernels/attention_blocks.h>

namespace chorus::kernel {

/// p of all heads as C with a margin of `lanes` zero rows at both ends, which queries and keys beyond the sequence's end
/// touch: as rows [heads, count, width], and turned, [heads, width, count].
template <class C>
struct OffsetTables {
  template <class T>
  OffsetTables(const Tensor& p, const AttentionOptions& o, const T*)
      : reach((p.size(0) + 1) / 2),
        width(whole<C>(o.head_dim)),
        count(whole<C>(p.size(0)) + 2 * lanes<C>),
        rows_of(Tensor::zeros(p.context(), {o.heads * count * width}, dtype_of<C>, Category::workspace)),
        columns_of(Tensor::empty(p.context(), {o.heads * count * width}, dtype_of<C>, Category::workspace)) {
    const T* from = p.as<T>();
#pragma omp parallel for schedule(static) if (rows_of.numel() > parallel_elements)
    for (std::int64_t h = 0; h < o.heads; ++h) {
      C* to = rows_of.template as<C>() + h * count * width;
      pack_rows<C, T>(from + h * o.head_dim, p.size(1), p.size(0), o.head_dim, nullptr, C{1}, to + lanes<C> * width, width, 0);
      transpose<C>(count, width, to, width, columns_of.template as<C>() + h * count * width, count);
    }
  }
  /// Where the band of queries [query, query + lanes) and keys from `key` on begins. Tables of a sequence's own length L, in
  /// which gradients are summed, are indexed with reach = L.
  static std::int64_t band(std::int64_t reach, std::int64_t query, std::int64_t key) { return reach - query + key; }
  Right<C> rows(std::int64_t head, std::int64_t row) const {
    return {rows_of.template as<C>() + (head * count + row) * width, width};
  }
  Right<C> columns(std::int64_t head, std::int64_t row) const {
    return {columns_of.template as<C>() + head * count * width + row, count};
  }

  std::int64_t reach, width, count;
  Tensor rows_of, columns_of;
};

/// Offsets in the band of one vector's queries.
template <class C>
constexpr std::int64_t band_width(std::int64_t keys) {
  return whole<C>(keys) + lanes<C>;
}

/// scores[key][query] += raw[query][lanes - 1 - query + key] for one vector's queries.
template <class C>
void add_band(const C* raw, std::int64_t keys, C* scores) {
  const std::int64_t ld = band_width<C>(keys);
  for (std::int64_t b = 0; b < keys; b += lanes<C>) {
    auto x = load_tile<C>(raw + lanes<C> - 1 + b, ld - 1);
    transpose<C>(x);
    for (std::int64_t k = b; k < std::min(keys, b + lanes<C>); ++k) {
      C* row = scores + k * block_queries<C>;
      store<C>(row, load<C>(row) + x[static_cast<std::size_t>(k - b)]);
    }
  }
}

/// raw[query][lanes - 1 - query + key] = scores[key][query], zero elsewhere. Rows of `scores` up to whole(keys) are read.
template <class C>
void take_band(const C* scores, std::int64_t keys, C* raw) {
  const std::int64_t ld = band_width<C>(keys);
  std::fill(raw, raw + lanes<C> * ld, C{0});
  for (std::int64_t b = 0; b < keys; b += lanes<C>) {
    auto x = load_tile<C>(scores + b * block_queries<C>, block_queries<C>);
    transpose<C>(x);
    for (std::int64_t a = 0; a < lanes<C>; ++a) store<C>(raw + a * ld + lanes<C> - 1 - a + b, x[static_cast<std::size_t>(a)]);
  }
}

}  // namespace chorus::kernel
