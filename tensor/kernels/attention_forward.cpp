#include <chorus/tensor/kernels/attention_dropout.h>
#include <chorus/tensor/kernels/attention_relative.h>

#include <optional>

namespace chorus::kernel {
namespace {

/// Online softmax (Milakov and Gimelshein 2018) of one block: turns scores into exponentials relative to the largest score so
/// far, and scales what was summed before to it. `factors` drop probabilities, not their sum.
template <class C>
void softmax_block(C* scores, std::int64_t keys, int vectors, bool diagonal, const C* factors, C* top, C* total, C* out,
                   std::int64_t dim, bool first) {
  for (std::int64_t q = 0; q < vectors * lanes<C>; q += lanes<C>) {
    C* column = scores + q;
    const std::int64_t seen = mask_column(column, keys, q, diagonal);
    const Vec<C> before = load<C>(top + q);
    Vec<C> now = before;
    for (std::int64_t k = 0; k < seen; ++k) now = maximum<C>(now, load<C>(column + k * block_queries<C>));
    const Vec<C> shrink = exp<C>(before - now);
    Vec<C> sum = load<C>(total + q) * shrink;
    for (std::int64_t k = 0; k < seen; ++k) {
      C* row = column + k * block_queries<C>;
      const Vec<C> e = exp<C>(load<C>(row) - now);
      sum += e;
      store<C>(row, factors ? e * load<C>(factors + q + k * block_queries<C>) : e);
    }
    store<C>(top + q, now);
    store<C>(total + q, sum);
    if (first) continue;
    for (std::int64_t c = 0; c < dim; ++c)
      store<C>(out + q + c * block_queries<C>, load<C>(out + q + c * block_queries<C>) * shrink);
  }
}

template <class T>
class Forward {
  using C = compute_type<T>;
  static constexpr std::int64_t ld = block_queries<C>;

 public:
  Forward(const Tensor& qkv, const RelativeTerms* relative, const Rows& rows, const AttentionOptions& options, Tensor& y,
          Tensor& lse)
      : qkv(qkv),
        rows(rows),
        o(options),
        y(y),
        lse(lse),
        relative(relative),
        dim(o.head_dim),
        width(whole<C>(dim)),
        scale(static_cast<C>(1 / std::sqrt(static_cast<double>(dim)))),
        packed(qkv, o, static_cast<const T*>(nullptr)) {
    if (relative) tables.emplace(relative->p, o, static_cast<const T*>(nullptr));
  }

  void run() {
    const auto blocks = query_blocks<C>(rows);
    const auto count = static_cast<std::int64_t>(blocks.size());
    const std::int64_t scratch_size =
        4 * width * ld + 2 * block_keys<C> * ld + 2 * ld + lanes<C> * band_width<C>(block_keys<C>);
    const bool parallel = 4.0 * visible_pairs(rows, o.causal) * o.heads * dim > parallel_flops;
    const int threads = parallel ? omp_get_max_threads() : 1;
    const Tensor scratch = Tensor::empty(qkv.context(), {threads * scratch_size}, dtype_of<C>, Category::workspace);
#pragma omp parallel for collapse(2) schedule(dynamic) num_threads(threads)
    for (std::int64_t h = 0; h < o.heads; ++h)
      for (std::int64_t b = count - 1; b >= 0; --b)  // causal: the long rows at a sequence's end first
        block(h, blocks[static_cast<std::size_t>(b)], Scratch<C>(scratch.as<C>() + omp_get_thread_num() * scratch_size));
  }

 private:
  void block(std::int64_t h, const QueryBlock& b, Scratch<C> scratch) const {
    const std::int64_t row = rows.begin(b.sequence) + b.first, first_key = rows.begin(b.sequence),
                       kv = h * o.kv_heads / o.heads;
    const int vectors = static_cast<int>(whole<C>(b.count) / lanes<C>);
    C *lines = scratch.take(ld * width), *q = scratch.take(width * ld), *qv = scratch.take(width * ld),
      *out = scratch.take(width * ld);
    C *scores = scratch.take(block_keys<C> * ld), *factors = scratch.take(block_keys<C> * ld);
    C *top = scratch.take(ld), *total = scratch.take(ld), *raw = scratch.take(lanes<C> * band_width<C>(block_keys<C>));

    load_queries(h, row, b.count, relative ? &relative->u : nullptr, lines, q);
    if (relative) load_queries(h, row, b.count, &relative->v, lines, qv);
    std::fill_n(top, ld, hidden<C>);
    std::fill_n(total, ld, C{0});
    for_key_blocks<C>(b, rows.length(b.sequence), o.causal, [&](std::int64_t j, std::int64_t keys, bool diagonal) {
      const bool first = j == 0;
      for_strips<C>(keys, diagonal, [&](std::int64_t k, std::int64_t n, std::int64_t from) {
        block_product(n, vectors - static_cast<int>(from / lanes<C>), dim, packed.keys(kv, first_key + j + k), {q + from, ld},
                      scores + k * ld + from, ld, false);
      });
      if (relative)
        for (std::int64_t a = 0; a < b.count; a += lanes<C>) {
          const std::int64_t band = tables->band(tables->reach, b.first + a, j), offsets = band_width<C>(keys);
          block_product(lanes<C>, static_cast<int>(offsets / lanes<C>), dim, Left<C>{qv + a, ld, true},
                        tables->columns(h, band), raw, offsets, false);
          add_band(raw, keys, scores + a);
        }
      if (o.dropout > 0) fill_dropout(o, sample(b.sequence), h, b.first, vectors * lanes<C>, j, keys, factors);
      softmax_block(scores, keys, vectors, diagonal, o.dropout > 0 ? factors : nullptr, top, total, out, dim, first);
      for_strips<C>(keys, diagonal, [&](std::int64_t k, std::int64_t n, std::int64_t from) {
        block_product(dim, vectors - static_cast<int>(from / lanes<C>), n, transposed(packed.values(kv, first_key + j + k)),
                      {scores + k * ld + from, ld}, out + from, ld, !first || k > 0);
      });
    });
    for (std::int64_t i = 0; i < vectors * lanes<C>; i += lanes<C>) {
      const Vec<C> inverse = C{1} / load<C>(total + i);
      for (std::int64_t c = 0; c < dim; ++c) store<C>(out + c * ld + i, load<C>(out + c * ld + i) * inverse);
    }
    transpose<C>(width, vectors * lanes<C>, out, ld, lines, width);
    unpack_rows<C, T>(lines, width, b.count, dim, y.as<T>() + row * o.heads * dim + h * dim, o.heads * dim);
    for (std::int64_t i = 0; i < b.count; ++i) lse.as<C>()[h * qkv.size(0) + row + i] = top[i] + std::log(total[i]);
  }

  /// to[dim][query] = (q + shift) / sqrt(head_dim): scaled here, scores need no scaling.
  void load_queries(std::int64_t h, std::int64_t row, std::int64_t count, const Tensor* shift, C* lines, C* to) const {
    pack_rows<C, T>(qkv.as<T>() + row * qkv.size(1) + h * dim, qkv.size(1), count, dim,
                    shift ? shift->as<T>() + h * dim : nullptr, scale, lines, width, whole<C>(count));
    transpose<C>(whole<C>(count), width, lines, width, to, ld);
  }
  std::uint32_t sample(std::int64_t s) const { return static_cast<std::uint32_t>(rows.ids.as<std::int64_t>()[s]); }

  const Tensor& qkv;
  const Rows& rows;
  const AttentionOptions& o;
  Tensor &y, &lse;
  const RelativeTerms* relative;
  std::int64_t dim, width;
  C scale;
  PackedKeys<C> packed;
  std::optional<OffsetTables<C>> tables;
};

}  // namespace

void attention(Cpu, const Tensor& qkv, const RelativeTerms* relative, const Rows& rows, const AttentionOptions& options,
               Tensor& y, Tensor& lse) {
  dispatch_floating(qkv.dtype(), "attention", [&]<class T>() { Forward<T>(qkv, relative, rows, options, y, lse).run(); });
}

}  // namespace chorus::kernel
