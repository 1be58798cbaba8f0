// Attention layers that hold only some heads: a plan cuts their weights and says in `options` which heads are left.
#include <chorus/core/rng.h>
#include <chorus/nn/layers/attention.h>
#include <chorus/nn/materialize.h>
#include <op_cases/op_case.h>

namespace chorus::testing {
namespace {

constexpr std::int64_t model_features = 12;
const Pass dropping{.training = true, .seed = 1, .step = 2};

/// Heads [first, first + count) of a layer with as many key/value heads.
struct Heads {
  int first, count;
};

template <class M>
M with_values(Context& context, M layer) {
  materialize(layer, context, {.dtype = DType::f64, .seed = 3, .freeze = {}});
  return layer;
}

/// Rows of `x`: ranges side by side.
Tensor rows_of_ranges(const Tensor& x, const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
  const std::int64_t n = x.rank() == 2 ? x.size(1) : 1;
  const auto all = x.to_doubles();
  std::vector<double> part;
  for (const auto& [first, count] : ranges) part.insert(part.end(), all.begin() + first * n, all.begin() + (first + count) * n);
  const auto rows = static_cast<std::int64_t>(part.size()) / n;
  return Tensor::of(x.context(), x.rank() == 2 ? Shape{rows, n} : Shape{rows}, part);
}
Tensor columns_from(const Tensor& x, std::int64_t first, std::int64_t count) {
  const auto all = x.to_doubles();
  std::vector<double> part;
  for (auto row = all.begin(); row != all.end(); row += x.size(1)) part.insert(part.end(), row + first, row + first + count);
  return Tensor::of(x.context(), {x.size(0), count}, part);
}

/// What a plan does to qkv and out; `heads` counts key/value heads, which `shared` query heads read each.
template <class M>
void keep_heads(M& layer, Heads heads, int all, int shared, int dim) {
  const std::int64_t k = std::int64_t{all} * shared * dim, first = heads.first * dim, count = heads.count * dim;
  const std::vector<std::pair<std::int64_t, std::int64_t>> ranges{
      {first * shared, count * shared}, {k + first, count}, {k + all * dim + first, count}};
  layer.qkv.weight.fused.value = rows_of_ranges(layer.qkv.weight.fused.value, ranges);
  layer.qkv.bias.fused.value = rows_of_ranges(layer.qkv.bias.fused.value, ranges);
  layer.out.weight.value = columns_from(layer.out.weight.value, first * shared, count * shared);
  if (heads.first > 0) layer.out.bias.value = Tensor::zeros(layer.out.bias.value.context(), {model_features}, DType::f64);
  const auto holds = [](Param& param, std::int64_t begin, std::int64_t size) {
    param.box.begin[0] = begin, param.box.size[0] = size;
  };
  holds(layer.qkv.weight.parts[0].second, first * shared, count * shared);
  for (const std::size_t i : {1, 2}) holds(layer.qkv.weight.parts[i].second, first, count);
}

Tensor normal(Context& context, const Shape& shape, const char* path) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  fill_normal(random_key(6, path), 0, std::span<double>(values), 0.0, 1.0);
  return Tensor::of(context, shape, values);
}

std::vector<double> added(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < b.size(); ++i) a.at(i) += b[i];
  return a;
}

TEST(PartialHeads, RotaryPartsAddUpToTheWholeInEveryPass) {
  Context context;
  const RotaryAttention::Options options{.heads = 6, .kv_heads = 3, .head_dim = 4, .bias = true, .dropout = 0.4};
  const auto make = [&] { return with_values(context, RotaryAttention(model_features, options)); };
  const RotaryAttention whole = make();
  std::vector<RotaryAttention> parts;
  for (const Heads heads : {Heads{0, 1}, Heads{1, 2}}) {
    keep_heads(parts.emplace_back(make()), heads, 3, 2, 4);
  }
  const Rows rows = make_rows(context, std::vector<std::int64_t>{7, 5}, std::vector<std::int64_t>{3, 4});
  const Tensor x = normal(context, {12, model_features}, "x");
  expect_close("training", added(parts[0](x, rows, dropping).to_doubles(), parts[1](x, rows, dropping).to_doubles()),
               whole(x, rows, dropping).to_doubles(), 1e-14);

  NoGrad quiet(context);
  const Tensor next = normal(context, {2, model_features}, "next");
  const Rows one = make_rows(context, std::vector<std::int64_t>{1, 1}, std::vector<std::int64_t>{3, 4});
  const std::vector<std::int32_t> seen{7, 5};
  one.positions.copy_from_host(seen.data());
  const auto decoded = [&](const RotaryAttention& layer) {
    const Shape shape{2, 9, std::int64_t{layer.heads_held().kv_heads} * 4};
    KeyValueCache cache{Tensor::empty(context, shape, DType::f64), Tensor::empty(context, shape, DType::f64)};
    auto values = layer.prefill(x, rows, cache).to_doubles();
    const auto more = layer.decode(next, one, cache, Tensor::of(context, {2}, seen)).to_doubles();
    values.insert(values.end(), more.begin(), more.end());
    return values;
  };
  expect_close("prefill and decode", added(decoded(parts[0]), decoded(parts[1])), decoded(whole), 1e-14);
}

TEST(PartialHeads, RelativePartsAddUpToTheWhole) {
  Context context;
  const auto make = [&] {
    auto layer = with_values(context, RelativeAttention(model_features, {.heads = 3, .dropout = 0.4}));
    layer.pos_bias_u.value = normal(context, {model_features}, "u");
    layer.pos_bias_v.value = normal(context, {model_features}, "v");
    return layer;
  };
  const RelativeAttention whole = make();
  const Rows rows = make_rows(context, std::vector<std::int64_t>{7, 5}, std::vector<std::int64_t>{3, 4});
  const Tensor x = normal(context, {12, model_features}, "x"),
               encoding = relative_encoding(context, 7, model_features, DType::f64);
  std::vector<double> sum(static_cast<std::size_t>(x.numel()));
  for (const Heads heads : {Heads{0, 1}, Heads{1, 2}}) {
    RelativeAttention part = make();
    keep_heads(part, heads, 3, 1, 4);
    const std::vector<std::pair<std::int64_t, std::int64_t>> range{{heads.first * 4, heads.count * 4}};
    for (Param* p : {&part.pos.weight, &part.pos_bias_u, &part.pos_bias_v}) p->value = rows_of_ranges(p->value, range);
    sum = added(sum, part(x, encoding, rows, dropping).to_doubles());
  }
  expect_close("training", sum, whole(x, encoding, rows, dropping).to_doubles(), 1e-14);
}

TEST(PartialHeads, RelativeHeadsMayHaveASizeOfTheirOwn) {
  Context context;
  auto layer = with_values(context, RelativeAttention(10, {.heads = 3, .head_dim = 4}));
  EXPECT_EQ(layer.qkv.weight.fused.global, (Shape{36, 10}));
  EXPECT_EQ(layer.out.weight.global, (Shape{10, 12}));
  const Rows rows = make_rows(context, std::vector<std::int64_t>{5}, std::vector<std::int64_t>{3});
  const Tensor y = layer(normal(context, {5, 10}, "x"), relative_encoding(context, 5, 10, DType::f64), rows, {});
  EXPECT_EQ(y.shape(), (Shape{5, 10}));
  EXPECT_EQ(RelativeAttention(12, {.heads = 3}).options.head_dim, 4);
  EXPECT_THROW(RelativeAttention(10, {.heads = 3}), Error);
}

}  // namespace
}  // namespace chorus::testing
