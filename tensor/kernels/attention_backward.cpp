#include <chorus/tensor/kernels/attention_dropout.h>
#include <chorus/tensor/kernels/attention_relative.h>

#include <atomic>
#include <optional>
#include <thread>

namespace chorus::kernel {
namespace {

/// One item of work is a head of a sequence, or of a long sequence a part of its queries. It owns the gradients of these, and
/// sums those of keys, values and offsets in arrays of its head; a head's parts do so one after another. The arrays are added
/// over heads and sequences afterwards, in order, so threads change no bit.
template <class T>
class Backward {
  using C = compute_type<T>;
  static constexpr std::int64_t ld = block_queries<C>;

 public:
  Backward(const Tensor& qkv, const RelativeTerms* relative, const Rows& rows, const AttentionOptions& options, const Tensor& y,
           const Tensor& lse, const Tensor& dy, Tensor& dqkv)
      : qkv(qkv),
        rows(rows),
        o(options),
        y(y),
        lse(lse),
        dy(dy),
        dqkv(dqkv),
        relative(relative),
        dim(o.head_dim),
        width(whole<C>(dim)),
        total(qkv.size(0)),
        scale(static_cast<C>(1 / std::sqrt(static_cast<double>(dim)))),
        packed(qkv, o, static_cast<const T*>(nullptr)),
        dkv(workspace(2 * o.heads * total * width)) {
    if (!relative) return;
    tables.emplace(relative->p, o, static_cast<const T*>(nullptr));
    for (std::int64_t s = 0; s < rows.sequences(); ++s) band_first.push_back(band_first.back() + offsets(rows.length(s)));
    dband = workspace(o.heads * band_first.back() * width);
    dbias = workspace(2 * o.heads * rows.sequences() * width);
  }

  void run(RelativeTerms* drelative) {
    const std::vector<Item> items = ordered_items();
    const auto count = static_cast<std::int64_t>(items.size());
    std::vector<std::atomic<std::int32_t>> parts_done(static_cast<std::size_t>(rows.sequences() * o.heads));
    std::atomic<std::int64_t> next = 0;
    const std::int64_t scratch_size =
        8 * width * ld + 3 * block_keys<C> * ld + 2 * ld + lanes<C> * band_width<C>(block_keys<C>);
    const bool parallel = 10.0 * visible_pairs(rows, o.causal) * o.heads * dim > parallel_flops;
    const int threads = parallel ? omp_get_max_threads() : 1;
    const Tensor scratch = workspace(threads * scratch_size);
#pragma omp parallel num_threads(threads)
    for (std::int64_t i = next++; i < count; i = next++) {
      const Item item = items[static_cast<std::size_t>(i)];
      auto& done = parts_done[static_cast<std::size_t>(item.sequence * o.heads + item.head)];
      // Items begin in order, so the part before has begun; mostly it ended long ago.
      while (done.load(std::memory_order_acquire) < item.part) std::this_thread::yield();
      compute(item, scratch.as<C>() + omp_get_thread_num() * scratch_size);
      done.store(item.part + 1, std::memory_order_release);
    }
    add_key_gradients();
    if (!drelative) return;
    for (int bias = 0; bias < 2; ++bias)
      if (Tensor& d = bias ? drelative->v : drelative->u)
        dispatch_floating(d.dtype(), "relative_attention", [&]<class G>() { add_bias_gradients(bias, d.as<G>()); });
    if (Tensor& d = drelative->p)
      dispatch_floating(d.dtype(), "relative_attention", [&]<class G>() { add_offset_gradients(d.as<G>()); });
  }

 private:
  /// What a query block needs besides scores. "lines" have a query per row, the others one per column.
  struct Queries {
    C *q, *q_lines, *dy, *dy_lines, *qv, *qv_lines, *dq, *dqv_lines, *lse, *dot;
  };

  struct Item {
    std::int32_t sequence, head, part;
  };

  /// One part for about every 1,024 queries, whatever the number of threads.
  std::int32_t parts(std::int64_t s) const {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(rows.length(s) / 1024, 1, 8));
  }
  /// The block of queries at which a part begins. Later queries of causal attention see more keys, so parts get narrower.
  std::int64_t first_block(std::int64_t s, std::int32_t part) const {
    const auto blocks = static_cast<double>((rows.length(s) + block_queries<C> - 1) / block_queries<C>);
    const double share = static_cast<double>(part) / parts(s);
    return std::llround(blocks * (o.causal ? std::sqrt(share) : share));
  }
  /// First parts of all heads first, longest sequences first.
  std::vector<Item> ordered_items() const {
    std::vector<Item> items;
    for (std::int32_t s = 0; s < rows.sequences(); ++s)
      for (std::int32_t h = 0; rows.length(s) > 0 && h < o.heads; ++h)
        for (std::int32_t p = 0; p < parts(s); ++p) items.push_back({s, h, p});
    std::stable_sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
      return a.part != b.part ? a.part < b.part : rows.length(a.sequence) > rows.length(b.sequence);
    });
    return items;
  }

  void compute(Item item, C* memory) {
    const std::int64_t h = item.head, s = item.sequence, length = rows.length(s);
    Scratch<C> scratch(memory);
    const auto matrix = [&] { return scratch.take(width * ld); };
    const Queries x{matrix(), matrix(), matrix(), matrix(),         matrix(),
                    matrix(), matrix(), matrix(), scratch.take(ld), scratch.take(ld)};
    C *scores = scratch.take(block_keys<C> * ld), *dscores = scratch.take(block_keys<C> * ld);
    C *factors = scratch.take(block_keys<C> * ld), *raw = scratch.take(lanes<C> * band_width<C>(block_keys<C>));
    if (relative && item.part == 0) {
      std::fill_n(doffset(h, s), offsets(length) * width, C{0});
      for (int bias = 0; bias < 2; ++bias) std::fill_n(dbias_of(bias, h, s), width, C{0});
    }
    const std::int64_t end = std::min(length, first_block(s, item.part + 1) * block_queries<C>);
    for (std::int64_t i = first_block(s, item.part) * block_queries<C>; i < end; i += block_queries<C>) {
      const QueryBlock block{s, i, std::min(block_queries<C>, length - i)};
      load_queries(h, block, x);
      for_key_blocks<C>(block, length, o.causal, [&](std::int64_t j, std::int64_t keys, bool diagonal) {
        score(h, block, j, keys, diagonal, x, scores, dscores, raw);
        if (o.dropout > 0)
          fill_dropout(o, static_cast<std::uint32_t>(rows.ids.as<std::int64_t>()[s]), h, i, whole<C>(block.count), j, keys,
                       factors);
        softmax(block.count, keys, diagonal, o.dropout > 0 ? factors : nullptr, x, scores, dscores);
        propagate(h, block, j, keys, diagonal, x, scores, dscores);
        if (relative) propagate_offsets(h, block, j, keys, x, dscores, raw);
      });
      store_queries(h, block, x);
    }
  }

  void load_queries(std::int64_t h, const QueryBlock& b, const Queries& x) const {
    const std::int64_t row = rows.begin(b.sequence) + b.first, padded = whole<C>(b.count), features = o.heads * dim;
    const T* q = qkv.as<T>() + row * qkv.size(1) + h * dim;
    pack_rows<C, T>(q, qkv.size(1), b.count, dim, relative ? relative->u.as<T>() + h * dim : nullptr, scale, x.q_lines, width,
                    padded);
    transpose<C>(padded, width, x.q_lines, width, x.q, ld);
    if (relative) {
      pack_rows<C, T>(q, qkv.size(1), b.count, dim, relative->v.as<T>() + h * dim, scale, x.qv_lines, width, padded);
      transpose<C>(padded, width, x.qv_lines, width, x.qv, ld);
    }
    pack_rows<C, T>(dy.as<T>() + row * features + h * dim, features, b.count, dim, nullptr, C{1}, x.dy_lines, width, padded);
    transpose<C>(padded, width, x.dy_lines, width, x.dy, ld);
    C* y_lines = x.dq;  // not begun yet
    pack_rows<C, T>(y.as<T>() + row * features + h * dim, features, b.count, dim, nullptr, C{1}, y_lines, width, padded);
    std::fill_n(x.lse, ld, C{0});
    std::fill_n(x.dot, ld, C{0});
    for (std::int64_t i = 0; i < b.count; ++i) {
      x.lse[i] = lse.as<C>()[h * total + row + i];
      Vec<C> dot{};
      for (std::int64_t c = i * width; c < (i + 1) * width; c += lanes<C>)
        dot += load<C>(x.dy_lines + c) * load<C>(y_lines + c);
      x.dot[i] = sum<C>(dot);
    }
  }

  /// scores[key][query] and dscores = v dy^T, both before the softmax.
  void score(std::int64_t h, const QueryBlock& b, std::int64_t j, std::int64_t keys, bool diagonal, const Queries& x, C* scores,
             C* dscores, C* raw) const {
    const std::int64_t kv = h * o.kv_heads / o.heads, first_key = rows.begin(b.sequence) + j;
    for_strips<C>(keys, diagonal, [&](std::int64_t k, std::int64_t n, std::int64_t from) {
      const int vectors = static_cast<int>((whole<C>(b.count) - from) / lanes<C>);
      block_product(n, vectors, dim, packed.keys(kv, first_key + k), {x.q + from, ld}, scores + k * ld + from, ld, false);
      block_product(n, vectors, dim, packed.values(kv, first_key + k), {x.dy + from, ld}, dscores + k * ld + from, ld, false);
    });
    if (!relative) return;
    const std::int64_t offsets = band_width<C>(keys);
    for (std::int64_t a = 0; a < b.count; a += lanes<C>) {
      const auto band = tables->columns(h, tables->band(tables->reach, b.first + a, j));
      block_product(lanes<C>, static_cast<int>(offsets / lanes<C>), dim, Left<C>{x.qv + a, ld, true}, band, raw, offsets,
                    false);
      add_band(raw, keys, scores + a);
    }
  }

  /// scores become (dropped) probabilities P, dscores P (dP - rowsum(dy y)): the softmax's gradient.
  static void softmax(std::int64_t queries, std::int64_t keys, bool diagonal, const C* factors, const Queries& x, C* scores,
                      C* dscores) {
    for (std::int64_t q = 0; q < queries; q += lanes<C>) {
      const std::int64_t seen = mask_column(scores + q, keys, q, diagonal);
      const Vec<C> lse = load<C>(x.lse + q), dot = load<C>(x.dot + q);
      for (std::int64_t at = q; at < q + seen * ld; at += ld) {
        const Vec<C> p = exp<C>(load<C>(scores + at) - lse), factor = factors ? load<C>(factors + at) : all<C>(1);
        store<C>(scores + at, p * factor);
        store<C>(dscores + at, p * (load<C>(dscores + at) * factor - dot));
      }
    }
  }

  /// dv += P^T dy, dk += dS^T q, dq += dS k.
  void propagate(std::int64_t h, const QueryBlock& b, std::int64_t j, std::int64_t keys, bool diagonal, const Queries& x,
                 const C* scores, const C* dscores) const {
    const std::int64_t kv = h * o.kv_heads / o.heads, first_key = rows.begin(b.sequence) + j;
    const int across = static_cast<int>(width / lanes<C>);
    const bool add =
        o.causal ? !diagonal : b.first > 0;  // the first query block to see a key is causally its own, else the first
    for_strips<C>(keys, diagonal, [&](std::int64_t k, std::int64_t n, std::int64_t from) {
      const std::int64_t at = k * ld + from, row = first_key + k, queries = b.count - from;
      block_product(n, across, queries, Left<C>{scores + at, ld}, {x.dy_lines + from * width, width}, dvalue(h, row), width,
                    add);
      block_product(n, across, queries, Left<C>{dscores + at, ld}, {x.q_lines + from * width, width}, dkey(h, row), width, add);
      block_product(dim, static_cast<int>((whole<C>(b.count) - from) / lanes<C>), n, transposed(packed.keys(kv, row)),
                    {dscores + at, ld}, x.dq + from, ld, j + k > 0);
    });
  }

  /// d(q + v) += dS p and dp += dS^T (q + v), over the band of offsets.
  void propagate_offsets(std::int64_t h, const QueryBlock& b, std::int64_t j, std::int64_t keys, const Queries& x, C* dscores,
                         C* raw) const {
    const int across = static_cast<int>(width / lanes<C>);
    const std::int64_t offsets = band_width<C>(keys), length = rows.length(b.sequence);
    std::fill(dscores + keys * ld, dscores + whole<C>(keys) * ld, C{0});
    for (std::int64_t a = 0; a < b.count; a += lanes<C>) {
      take_band(dscores + a, keys, raw);
      const std::int64_t queries = std::min<std::int64_t>(lanes<C>, b.count - a);
      block_product(queries, across, offsets, Left<C>{raw, offsets},
                    tables->rows(h, tables->band(tables->reach, b.first + a, j)), x.dqv_lines + a * width, width, j > 0);
      block_product(offsets, across, queries, Left<C>{raw, offsets, true}, {x.qv_lines + a * width, width},
                    doffset(h, b.sequence) + tables->band(length, b.first + a, j) * width, width, true);
    }
  }

  void store_queries(std::int64_t h, const QueryBlock& b, const Queries& x) const {
    const std::int64_t row = rows.begin(b.sequence) + b.first;
    transpose<C>(width, whole<C>(b.count), x.dq, ld, x.q_lines, width);  // q itself is no longer needed
    for (std::int64_t at = 0; at < b.count * width; at += lanes<C>) {
      C* dq = x.q_lines + at;
      Vec<C> sum = load<C>(dq) * scale;
      if (relative) {
        const Vec<C> dqv = load<C>(x.dqv_lines + at) * scale;
        C *du = dbias_of(0, h, b.sequence) + at % width, *dv = dbias_of(1, h, b.sequence) + at % width;
        store<C>(du, load<C>(du) + sum);
        store<C>(dv, load<C>(dv) + dqv);
        sum += dqv;
      }
      store<C>(dq, sum);
    }
    unpack_rows<C, T>(x.q_lines, width, b.count, dim, dqkv.as<T>() + row * qkv.size(1) + h * dim, qkv.size(1));
  }

  /// Keys and values: over the query heads that share them.
  void add_key_gradients() const {
    const std::int64_t shared = o.heads / o.kv_heads;
#pragma omp parallel for schedule(static) if (total * o.heads * dim > parallel_elements)
    for (std::int64_t t = 0; t < total; ++t)
      for (std::int64_t g = 0; g < 2 * o.kv_heads; ++g) {
        T* to = dqkv.as<T>() + t * qkv.size(1) + (o.heads + g) * dim;
        cover<C>(dim, [&](std::int64_t c, auto extent) {
          Vec<C> sum{};
          for (std::int64_t h = g * shared; h < (g + 1) * shared; ++h) sum += load<C>(dkey(h, t) + c);
          store<C>(to + c, sum, extent);
        });
      }
  }
  template <class G>
  void add_bias_gradients(int bias, G* to) const {
    for (std::int64_t h = 0; h < o.heads; ++h)
      cover<C>(dim, [&](std::int64_t c, auto extent) {
        Vec<C> sum{};
        for (std::int64_t s = 0; s < rows.sequences(); ++s)
          if (rows.length(s)) sum += load<C>(dbias_of(bias, h, s) + c);
        store<C>(to + h * dim + c, sum, extent);
      });
  }
  template <class G>
  void add_offset_gradients(G* to) const {
    const std::int64_t count = 2 * tables->reach - 1;
#pragma omp parallel for schedule(static) if (dband.numel() > parallel_elements)
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t h = 0; h < o.heads; ++h)
        cover<C>(dim, [&](std::int64_t c, auto extent) {
          Vec<C> sum{};
          for (std::int64_t s = 0; s < rows.sequences(); ++s) {
            const std::int64_t own = r - (tables->reach - rows.length(s));  // row of this offset among the sequence's 2 L - 1
            if (own >= 0 && own < 2 * rows.length(s) - 1) sum += load<C>(doffset(h, s) + (lanes<C> + own) * width + c);
          }
          store<C>(to + (r * o.heads + h) * dim + c, sum, extent);
        });
  }

  Tensor workspace(std::int64_t n) const { return Tensor::empty(qkv.context(), {n}, dtype_of<C>, Category::workspace); }
  C* dkey(std::int64_t h, std::int64_t row) const { return dkv.as<C>() + (h * total + row) * width; }
  C* dvalue(std::int64_t h, std::int64_t row) const { return dkey(o.heads + h, row); }
  /// Rows that the offsets of a sequence take, with the margins of OffsetTables.
  static std::int64_t offsets(std::int64_t length) { return length ? whole<C>(2 * length - 1) + 2 * lanes<C> : 0; }
  C* doffset(std::int64_t h, std::int64_t s) const {
    return dband.as<C>() + (h * band_first.back() + band_first[static_cast<std::size_t>(s)]) * width;
  }
  C* dbias_of(int bias, std::int64_t h, std::int64_t s) const {
    return dbias.as<C>() + ((bias * o.heads + h) * rows.sequences() + s) * width;
  }

  const Tensor& qkv;
  const Rows& rows;
  const AttentionOptions& o;
  const Tensor &y, &lse, &dy;
  Tensor& dqkv;
  const RelativeTerms* relative;
  std::int64_t dim, width, total;
  C scale;
  PackedKeys<C> packed;
  Tensor dkv;  ///< [keys or values, heads, T, width]
  std::optional<OffsetTables<C>> tables;
  std::vector<std::int64_t> band_first{0};  ///< where each sequence's offsets begin
  Tensor dband, dbias;                      ///< [heads, offsets of all sequences, width], [u or v, heads, sequences, width]
};

}  // namespace

void attention_backward(Cpu, const Tensor& qkv, const RelativeTerms* relative, const Rows& rows,
                        const AttentionOptions& options, const Tensor& y, const Tensor& lse, const Tensor& dy, Tensor& dqkv,
                        RelativeTerms* drelative) {
  dispatch_floating(qkv.dtype(), "attention",
                    [&]<class T>() { Backward<T>(qkv, relative, rows, options, y, lse, dy, dqkv).run(drelative); });
}

}  // namespace chorus::kernel
