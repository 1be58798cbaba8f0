#include <chorus/tensor/autograd/recompute.h>
#include <chorus/tensor/kernels/attention.h>
#include <chorus/tensor/layout_rules.h>
#include <chorus/tensor/ops/attention.h>

#include <cmath>

namespace chorus {
namespace {

void check(const char* op, const Tensor& qkv, const Rows& rows, const AttentionOptions& o) {
  require(o.heads > 0 && o.kv_heads > 0 && o.head_dim > 0 && o.heads % o.kv_heads == 0, op, o.heads, " heads of ", o.head_dim,
          " and ", o.kv_heads, " key/value heads; the latter must divide the former");
  require(o.dropout >= 0 && std::lround(o.dropout * 65536) < 65536, op, "dropout is ", o.dropout, "; it lies in [0, 1)");
  require(o.first_head >= 0, op, "the first head is ", o.first_head);
  const std::int64_t features = (o.heads + 2 * o.kv_heads) * o.head_dim;
  require(qkv.rank() == 2 && qkv.size(1) == features, op, "qkv is ", qkv, "; ", o.heads, " + 2 * ", o.kv_heads, " heads of ",
          o.head_dim, " need ", features, " features");
  require(qkv.size(0) == rows.count(), op, "qkv is ", qkv, " for ", rows.count(), " rows");
}

/// Of one of attention's products.
double product_flops(const Rows& rows, const AttentionOptions& o) {
  return 2 * kernel::visible_pairs(rows, o.causal) * o.heads * o.head_dim;
}

/// The result [rows, heads * head_dim] and the logarithm of each softmax's denominator, [heads, rows]: what both kinds of
/// attention give, `products` of them in the forward pass.
std::vector<Tensor> attended(const char* op, const Tensor& qkv, const kernel::RelativeTerms* terms, const Rows& rows,
                             const AttentionOptions& options, int products) {
  return kept_results(qkv.context(), op, [&] {
    Context& context = qkv.context();
    const Span span(context.trace, op, products * product_flops(rows, options));
    Tensor y = Tensor::empty(context, {qkv.size(0), std::int64_t{options.heads} * options.head_dim}, qkv.dtype());
    Tensor lse = Tensor::empty(context, {options.heads, qkv.size(0)}, wide(qkv.dtype()));
    kernel::attention(cpu(context, op), qkv, terms, rows, options, y, lse);
    return std::vector<Tensor>{y, lse};
  });
}

Tensor gradient_of(const Tensor& x, bool leaf) {
  return Tensor::empty(x.context(), x.shape(), leaf ? wide(x.dtype()) : x.dtype(), Category::activations);
}

}  // namespace

Tensor attention(const Tensor& qkv, const Rows& rows, const AttentionOptions& options) {
  check("attention", qkv, rows, options);
  const auto results = attended("attention", qkv, nullptr, rows, options, 2);
  const Tensor &y = results[0], &lse = results[1];
  return record(
      "attention", y, {qkv}, {qkv, y, lse, rows.offsets, rows.ids, rows.index, rows.positions}, [options](const Backward& b) {
        const Tensor &qkv = b.saved[0], &y = b.saved[1], &lse = b.saved[2];
        const Rows rows{b.saved[3], b.saved[4], b.saved[5], b.saved[6]};
        const Span span(qkv.context().trace, "attention.backward", 5 * product_flops(rows, options));
        Tensor dqkv = Tensor::empty(qkv.context(), qkv.shape(), qkv.dtype());
        kernel::attention_backward(cpu(qkv.context(), "attention"), qkv, nullptr, rows, options, y, lse, b.dy, dqkv, nullptr);
        return Grads{dqkv};
      });
}

Tensor relative_attention(const Tensor& qkv, const Tensor& u, const Tensor& v, const Tensor& p, const Rows& rows,
                          const AttentionOptions& options) {
  const char* op = "relative_attention";
  check(op, qkv, rows, options);
  const std::int64_t features = std::int64_t{options.heads} * options.head_dim;
  require(options.kv_heads == options.heads && !options.causal, op, options.heads, " heads, ", options.kv_heads,
          " key/value heads, causal ", options.causal, "; it is bidirectional, with as many key/value heads as heads");
  require(u.numel() == features && v.numel() == features, op, "u is ", u, ", v is ", v, "; both need ", features, " elements");
  const bool reaches = p.size(0) % 2 == 1 ? (p.size(0) + 1) / 2 >= rows.longest() : p.size(0) == 0 && rows.longest() == 0;
  require(p.rank() == 2 && p.size(1) == features && reaches, op, "p is ", p, " for sequences of up to ", rows.longest(),
          " rows; it needs 2 * reach - 1 rows of ", features);
  require(u.dtype() == qkv.dtype() && v.dtype() == qkv.dtype() && p.dtype() == qkv.dtype(), op, "qkv is ", qkv, ", u ", u,
          ", v ", v, ", p ", p, "; all need one type");
  const kernel::RelativeTerms terms{u, v, p};
  const auto results = attended(op, qkv, &terms, rows, options, 3);
  const Tensor &y = results[0], &lse = results[1];
  return record(op, y, {qkv, u, v, p}, {qkv, u, v, p, y, lse, rows.offsets, rows.ids, rows.index, rows.positions},
                [options](const Backward& b) {
                  const Tensor& qkv = b.saved[0];
                  const kernel::RelativeTerms terms{b.saved[1], b.saved[2], b.saved[3]};
                  const Rows rows{b.saved[6], b.saved[7], b.saved[8], b.saved[9]};
                  const Span span(qkv.context().trace, "relative_attention.backward", 8 * product_flops(rows, options));
                  Tensor dqkv = Tensor::empty(qkv.context(), qkv.shape(), qkv.dtype());
                  kernel::RelativeTerms gradients;
                  if (b.needs(1)) gradients.u = gradient_of(terms.u, b.sink(1));
                  if (b.needs(2)) gradients.v = gradient_of(terms.v, b.sink(2));
                  if (b.needs(3)) gradients.p = gradient_of(terms.p, b.sink(3));
                  kernel::attention_backward(cpu(qkv.context(), "relative_attention"), qkv, &terms, rows, options, b.saved[4],
                                             b.saved[5], b.dy, dqkv, &gradients);
                  return Grads{dqkv, gradients.u, gradients.v, gradients.p};
                });
}

Tensor cached_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& lengths,
                        const AttentionOptions& options) {
  const char* op = "cached_attention";
  const AttentionOptions& o = options;
  require(o.heads > 0 && o.kv_heads > 0 && o.head_dim > 0 && o.heads % o.kv_heads == 0, op, o.heads, " heads of ", o.head_dim,
          " and ", o.kv_heads, " key/value heads; the latter must divide the former");
  require(!wants_grad({q, keys, values}), op, "is for inference; it has no gradient");
  require(q.rank() == 2 && q.size(1) == std::int64_t{o.heads} * o.head_dim, op, "q is ", q, " for ", o.heads, " heads of ",
          o.head_dim);
  require(keys.rank() == 3 && keys.size(0) == q.size(0) && keys.size(2) == std::int64_t{o.kv_heads} * o.head_dim &&
              values.shape() == keys.shape() && keys.dtype() == q.dtype() && values.dtype() == q.dtype(),
          op, "q is ", q, ", keys ", keys, ", values ", values, " for ", o.kv_heads, " key/value heads of ", o.head_dim);
  require(lengths.dtype() == DType::i32 && lengths.numel() == q.size(0), op, "lengths are ", lengths, " for q ", q);
  double cached = 0;
  for (const auto n : lengths.span<const std::int32_t>()) {
    require(n >= 0 && n <= keys.size(1), op, "length ", n, " in a cache of ", keys.size(1), " rows");
    cached += n;
  }
  Context& context = q.context();
  const Span span(context.trace, "cached_attention", 4 * cached * o.heads * o.head_dim,
                  2 * cached * o.kv_heads * o.head_dim * static_cast<double>(size_of(q.dtype())));
  Tensor y = Tensor::empty(context, q.shape(), q.dtype());
  kernel::cached_attention(cpu(context, op), q, keys, values, lengths, o, y);
  y.set_layout(result_layout(op, {q}, y));
  return y;
}

}  // namespace chorus
