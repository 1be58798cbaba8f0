// What the attention kernels share. Scores of a block lie transposed, keys down and queries along the vectors, so that maxima,
// sums and masks of the softmax run down the columns and never across a vector.
#pragma once
#include <chorus/tensor/kernels/attention.h>
#include <chorus/tensor/kernels/block_product.h>
#include <chorus/tensor/kernels/transpose.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace chorus::kernel {

/// Rows and columns of a block of scores: 64 x 64 in f32 with 64-byte vectors (two such blocks fit the first cache).
template <class C>
constexpr std::int64_t block_queries = 4 * lanes<C>;
template <class C>
constexpr std::int64_t block_keys = block_queries<C>;
/// What a hidden score is lowered by: its exponential is 0.
template <class C>
constexpr C hidden = C(-1e30);
/// From this many flops on two threads are faster than one.
inline constexpr double parallel_flops = 2e6;

/// n rounded up to whole vectors.
template <class C>
constexpr std::int64_t whole(std::int64_t n) {
  return (n + lanes<C> - 1) / lanes<C> * lanes<C>;
}

/// Queries [first, first + count) of one sequence.
struct QueryBlock {
  std::int64_t sequence, first, count;
};
template <class C>
std::vector<QueryBlock> query_blocks(const Rows& rows) {
  std::vector<QueryBlock> blocks;
  for (std::int64_t s = 0; s < rows.sequences(); ++s)
    for (std::int64_t i = 0; i < rows.length(s); i += block_queries<C>)
      blocks.push_back({s, i, std::min(block_queries<C>, rows.length(s) - i)});
  return blocks;
}

/// Calls f(first key, keys, diagonal) for the key blocks that a query block sees. With `causal` only the last, which begins at
/// the block's own first query, holds hidden pairs; blocks after it are never visited.
template <class C, class F>
void for_key_blocks(const QueryBlock& block, std::int64_t length, bool causal, F f) {
  const std::int64_t end = causal ? block.first : length;
  for (std::int64_t j = 0; j < end; j += block_keys<C>) f(j, std::min(block_keys<C>, end - j), false);
  if (causal) f(block.first, block.count, true);
}

/// Calls f(first key, keys, first query) for the parts of a block that are not hidden as a whole: all of it, or on the diagonal
/// strips of one vector's keys with the queries from their own position on.
template <class C, class F>
void for_strips(std::int64_t keys, bool diagonal, F f) {
  const std::int64_t step = diagonal ? lanes<C> : keys;
  for (std::int64_t k = 0; k < keys; k += step) f(k, std::min(step, keys - k), diagonal ? k : 0);
}

/// What is added to the scores of a diagonal tile: row (key) r hides the queries before it.
template <class C>
constexpr auto triangle = [] {
  std::array<std::array<C, lanes<C>>, lanes<C>> t{};
  for (std::size_t key = 0; key < t.size(); ++key)
    for (std::size_t query = 0; query < key; ++query) t[key][query] = hidden<C>;
  return t;
}();

/// Lowers the hidden scores of the column of queries that begins at `query` (in the block); returns how many keys it sees.
template <class C>
std::int64_t mask_column(C* scores, std::int64_t keys, std::int64_t query, bool diagonal) {
  if (!diagonal) return keys;
  const std::int64_t seen = std::min(keys, query + lanes<C>);
  for (std::int64_t k = query; k < seen; ++k) {
    C* row = scores + k * block_queries<C>;
    store<C>(row, load<C>(row) + load<C>(triangle<C>[static_cast<std::size_t>(k - query)].data()));
  }
  return seen;
}

/// Calls body(i, extent) so that [0, n) is covered; the last whole vector overlaps the one before it. For bodies that may
/// compute an element twice: much faster than a partial vector.
template <class C, class Body>
void cover(std::int64_t n, Body body) {
  if (n < lanes<C>) {
    if (n > 0) body(std::int64_t{0}, First{static_cast<int>(n)});
    return;
  }
  for (std::int64_t i = 0; i < n - lanes<C>; i += lanes<C>) body(i, Whole{});
  body(n - lanes<C>, Whole{});
}

/// to[count, ld] = (from + shift) * scale as C, zero in columns from `width` on and in rows up to `padded`.
template <class C, class T>
void pack_rows(const T* from, std::int64_t stride, std::int64_t count, std::int64_t width, const T* shift, C scale, C* to,
               std::int64_t ld, std::int64_t padded) {
  for (std::int64_t r = 0; r < count; ++r, from += stride, to += ld) {
    cover<C>(width, [&](std::int64_t i, auto extent) {
      const Vec<C> x = load<C>(from + i, extent);
      store<C>(to + i, (shift ? x + load<C>(shift + i, extent) : x) * scale, extent);
    });
    std::fill(to + width, to + ld, C{0});
  }
  std::fill(to, to + std::max<std::int64_t>(padded - count, 0) * ld, C{0});
}
/// The way back: to[count, width] = from[count, ld] as T.
template <class C, class T>
void unpack_rows(const C* from, std::int64_t ld, std::int64_t count, std::int64_t width, T* to, std::int64_t stride) {
  for (std::int64_t r = 0; r < count; ++r, from += ld, to += stride)
    cover<C>(width, [&](std::int64_t i, auto extent) { store<C>(to + i, load<C>(from + i, extent), extent); });
}

/// Keys and values of all heads as C, [kv_heads, T, head_dim] each: converted once, however many query blocks read them.
template <class C>
struct PackedKeys {
  template <class T>
  PackedKeys(const Tensor& qkv, const AttentionOptions& o, const T*)
      : total(qkv.size(0)),
        dim(o.head_dim),
        heads(o.kv_heads),
        storage(Tensor::empty(qkv.context(), {2 * heads * total * dim}, dtype_of<C>, Category::workspace)) {
    const T* from = qkv.as<T>() + o.heads * dim;
    const std::int64_t stride = qkv.size(1), chunk = 64;
    C* to = storage.template as<C>();
#pragma omp parallel for collapse(2) schedule(static) if (total * dim * heads > parallel_elements)
    for (std::int64_t h = 0; h < 2 * heads; ++h)
      for (std::int64_t t = 0; t < total; t += chunk)
        pack_rows<C, T>(from + t * stride + h * dim, stride, std::min(chunk, total - t), dim, nullptr, C{1},
                        to + (h * total + t) * dim, dim, 0);
  }
  Left<C> keys(std::int64_t head, std::int64_t row) const {
    return {storage.template as<C>() + (head * total + row) * dim, dim};
  }
  Left<C> values(std::int64_t head, std::int64_t row) const { return keys(heads + head, row); }

  std::int64_t total, dim, heads;
  Tensor storage;
};
template <class C>
Left<C> transposed(Left<C> a) {
  return {a.data, a.ld, !a.transposed};
}

/// Arrays of one thread, taken from a buffer one after another.
template <class C>
class Scratch {
 public:
  explicit Scratch(C* next) : next_(next) {}
  C* take(std::int64_t n) { return std::exchange(next_, next_ + whole<C>(n)); }

 private:
  C* next_;
};

}  // namespace chorus::kernel
