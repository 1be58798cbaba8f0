#include <chorus/nn/layers/attention.h>
#include <chorus/tensor/ops/rope.h>

#include <cmath>
#include <cstring>

namespace chorus {

RotaryAttention::RotaryAttention(std::int64_t features, const Options& options)
    : qkv(features,
          {{"q", std::int64_t{options.heads} * options.head_dim},
           {"k", std::int64_t{options.kv_heads} * options.head_dim},
           {"v", std::int64_t{options.kv_heads} * options.head_dim}},
          {.bias = options.bias, .init = {}}),
      out(std::int64_t{options.heads} * options.head_dim, features, {.bias = options.bias, .init = {}}),
      dropout{.p = options.dropout},
      options(options) {}

namespace {
HeadsHeld heads_in(const StackedLinear& qkv, int head_dim) {
  const Param &q = qkv.weight.parts[0].second, &k = qkv.weight.parts[1].second;
  return {.heads = static_cast<int>(q.box.size[0]) / head_dim,
          .kv_heads = static_cast<int>(k.box.size[0]) / head_dim,
          .first_head = static_cast<int>(q.box.begin[0]) / head_dim};
}
}  // namespace

HeadsHeld RotaryAttention::heads_held() const { return heads_in(qkv, options.head_dim); }

AttentionOptions RotaryAttention::core_options() const {
  const HeadsHeld held = heads_held();
  return {.heads = held.heads,
          .kv_heads = held.kv_heads,
          .head_dim = options.head_dim,
          .causal = options.causal,
          .dropout = 0,
          .key = {},
          .first_head = held.first_head};
}

Tensor RotaryAttention::rotated(const Tensor& x, const Rows& rows) const {
  const HeadsHeld held = heads_held();
  return rope(qkv(x), rows, held.heads + held.kv_heads, options.head_dim, options.rope_base);
}

Tensor RotaryAttention::operator()(const Tensor& x, const Rows& rows, const Pass& pass) const {
  AttentionOptions attention_options = core_options();
  if (dropout.active(pass)) {
    attention_options.dropout = dropout.p;
    attention_options.key = dropout.key(pass);
  }
  return out(core(attention, rotated(x, rows), rows, attention_options));
}

namespace {
/// Copies the key and value part of row `row` of qkv into row `slot` of sequence b.
void store_row(const Tensor& qkv, std::int64_t row, std::int64_t q_features, KeyValueCache& cache, std::int64_t b,
               std::int64_t slot) {
  const std::int64_t n = cache.keys.size(2), capacity = cache.keys.size(1);
  require(slot < capacity, "decode", "row ", slot, " of a cache for ", capacity);
  const std::size_t element = size_of(qkv.dtype()), bytes = static_cast<std::size_t>(n) * element;
  const char* source = static_cast<const char*>(qkv.data()) + static_cast<std::size_t>(row * qkv.cols() + q_features) * element;
  const std::size_t target = static_cast<std::size_t>((b * capacity + slot) * n) * element;
  std::memcpy(static_cast<char*>(cache.keys.data()) + target, source, bytes);
  std::memcpy(static_cast<char*>(cache.values.data()) + target, source + bytes, bytes);
}
}  // namespace

Tensor RotaryAttention::prefill(const Tensor& x, const Rows& rows, KeyValueCache& cache) const {
  const Tensor packed = rotated(x, rows);
  const std::int64_t q_features = std::int64_t{heads_held().heads} * options.head_dim;
  for (std::int64_t b = 0; b < rows.sequences(); ++b)
    for (std::int64_t i = 0; i < rows.length(b); ++i) store_row(packed, rows.begin(b) + i, q_features, cache, b, i);
  return out(core(attention, packed, rows, core_options()));
}

Tensor RotaryAttention::decode(const Tensor& x, const Rows& rows, KeyValueCache& cache, const Tensor& lengths) const {
  const Tensor packed = rotated(x, rows);
  const std::int64_t q_features = std::int64_t{heads_held().heads} * options.head_dim, batch = packed.size(0);
  Tensor q = Tensor::empty(x.context(), {batch, q_features}, x.dtype());
  if (packed.layout()) {  // as q lies in qkv
    Layout layout = *packed.layout();
    for (auto& axis : layout) axis.parts = 1;
    q.set_layout(std::make_shared<const Layout>(std::move(layout)));
  }
  std::vector<std::int32_t> seen;
  for (std::int64_t b = 0; b < batch; ++b) {
    store_row(packed, b, q_features, cache, b, lengths.as<std::int32_t>()[b]);
    seen.push_back(lengths.as<std::int32_t>()[b] + 1);
    q.rows_view(b, b + 1).copy_from(packed.flat_view(b * packed.cols(), {1, q_features}));
  }
  return out(cached_attention(q, cache.keys, cache.values, Tensor::of(x.context(), {batch}, seen), core_options()));
}

RelativeAttention::RelativeAttention(std::int64_t features, const Options& given)
    : dropout{.p = given.dropout}, options(given) {
  if (!options.head_dim) {
    require(features % options.heads == 0, "RelativeAttention", features, " features for ", options.heads, " heads");
    options.head_dim = static_cast<int>(features / options.heads);
  }
  const std::int64_t inner = std::int64_t{options.heads} * options.head_dim;
  qkv = StackedLinear(features, {{"q", inner}, {"k", inner}, {"v", inner}}, {.bias = options.bias, .init = {}});
  pos = Linear(features, inner, {.bias = false, .init = {}});
  out = Linear(inner, features, {.bias = options.bias, .init = {}});
  pos_bias_u = Param({inner}, Init::zero());
  pos_bias_v = Param({inner}, Init::zero());
}

Tensor RelativeAttention::operator()(const Tensor& x, const Tensor& encoding, const Rows& rows, const Pass& pass) const {
  const HeadsHeld held = heads_in(qkv, options.head_dim);
  AttentionOptions attention_options{.heads = held.heads,
                                     .kv_heads = held.kv_heads,
                                     .head_dim = options.head_dim,
                                     .causal = false,
                                     .dropout = 0,
                                     .key = {},
                                     .first_head = held.first_head};
  if (dropout.active(pass)) {
    attention_options.dropout = dropout.p;
    attention_options.key = dropout.key(pass);
  }
  return out(core(relative_attention, qkv(x), pos_bias_u.value, pos_bias_v.value, pos(encoding), rows, attention_options));
}

Tensor relative_encoding(Context& context, std::int64_t reach, std::int64_t features, DType dtype) {
  require(features % 2 == 0, "relative_encoding", features, " features; an even number is needed");
  const std::int64_t rows = std::max<std::int64_t>(2 * reach - 1, 0);
  Tensor table = Tensor::empty(context, {rows, features}, dtype);
  dispatch_floating(dtype, "relative_encoding", [&]<class T>() {
    T* to = table.as<T>();
    for (std::int64_t c = 0; c < features; c += 2) {
      const double rate = std::pow(10000.0, -static_cast<double>(c) / static_cast<double>(features));
      for (std::int64_t r = 0; r < rows; ++r) {
        const double angle = static_cast<double>(reach - 1 - r) * rate;
        to[r * features + c] = static_cast<T>(std::sin(angle));
        to[r * features + c + 1] = static_cast<T>(std::cos(angle));
      }
    }
  });
  return table;
}

}  // namespace chorus
