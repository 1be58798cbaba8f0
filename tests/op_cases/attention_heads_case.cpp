// A layer whose heads are computed in groups: the same bits as all heads at once, dropout and gradients too.
#include <chorus/core/rng.h>
#include <chorus/tensor/ops/attention.h>
#include <gmock/gmock.h>

#include "op_cases/op_case.h"

namespace chorus::testing {
namespace {

const std::vector<std::int64_t> head_lengths{17, 0, 70, 1}, head_ids{5, 6, (std::int64_t{1} << 33) + 1, 9};
constexpr std::int64_t head_rows = 88, head_reach = 72;

/// Columns [first, first + n) of blocks that lie side by side in x [rows, cols], block after block.
struct Columns {
  std::int64_t first, n;
};
std::vector<double> columns_of(const std::vector<double>& x, std::int64_t cols, const std::vector<Columns>& blocks) {
  std::vector<double> part;
  for (auto row = x.begin(); row != x.end(); row += cols)
    for (const auto& block : blocks) part.insert(part.end(), row + block.first, row + block.first + block.n);
  return part;
}

std::vector<double> drawn(std::uint64_t stream, std::int64_t count) {
  std::vector<double> x;
  for (std::int64_t i = 0; i < count; ++i) x.push_back(test_value(stream, static_cast<std::uint64_t>(i), 2));
  return x;
}

Tensor tensor_of(Context& context, const Shape& shape, const std::vector<double>& x, DType dtype, bool leaf) {
  Tensor t = Tensor::empty(context, shape, dtype);
  dispatch_floating(dtype, "tensor_of", [&]<class T>() {
    for (std::size_t i = 0; i < x.size(); ++i) t.as<T>()[i] = static_cast<T>(x[i]);
  });
  if (leaf) make_leaf(t);
  return t;
}

/// Value and gradients of attention of these inputs (qkv, or qkv, u, v, p).
Values attended(const Values& x, const std::vector<double>& cotangent, const AttentionOptions& o, DType dtype) {
  Context context;
  const Rows rows = make_rows(context, head_lengths, head_ids);
  const std::int64_t features = o.heads * o.head_dim;
  const std::vector<Shape> shapes{
      {head_rows, features + 2 * o.kv_heads * o.head_dim}, {features}, {features}, {2 * head_reach - 1, features}};
  std::vector<Tensor> in;
  for (std::size_t i = 0; i < x.size(); ++i) in.push_back(tensor_of(context, shapes[i], x[i], dtype, true));
  const Tensor y = x.size() == 1 ? attention(in[0], rows, o) : relative_attention(in[0], in[1], in[2], in[3], rows, o);
  Values out{y.to_doubles()};
  backward(y, {.cotangent = tensor_of(context, y.shape(), cotangent, dtype, false)});
  for (const Tensor& leaf : in) out.push_back(leaf.node()->sink.grad.to_doubles());
  return out;
}

/// Key/value heads [0, 1) and [1, kv_heads) with their query heads against all at once.
void groups_equal_the_whole(AttentionOptions o, bool relative, DType dtype) {
  const std::int64_t d = o.head_dim, features = o.heads * d, kv = o.kv_heads * d, stride = features + 2 * kv;
  Values x{drawn(1, head_rows * stride)};
  if (relative)
    for (const auto& [stream, rows] : {std::pair{2, std::int64_t{1}}, {3, std::int64_t{1}}, {4, 2 * head_reach - 1}})
      x.push_back(drawn(static_cast<std::uint64_t>(stream), rows * features));
  const auto cotangent = drawn(9, head_rows * features);
  const Values whole = attended(x, cotangent, o, dtype);
  const int shared = o.heads / o.kv_heads;
  for (const auto& [first, count] : {std::pair{0, 1}, {1, o.kv_heads - 1}}) {
    AttentionOptions part = o;
    part.heads = count * shared;
    part.kv_heads = count;
    part.first_head = first * shared;
    const Columns q{part.first_head * d, part.heads * d}, k{features + first * d, count * d}, v{k.first + kv, k.n};
    const auto own = [&](const Values& of, std::size_t at) {
      return at == 0 ? columns_of(of[at], stride, {q, k, v}) : columns_of(of[at], features, {q});
    };
    Values mine;
    for (std::size_t i = 0; i < x.size(); ++i) mine.push_back(own(x, i));
    const Values got = attended(mine, columns_of(cotangent, features, {q}), part, dtype);
    EXPECT_EQ(got[0], columns_of(whole[0], features, {q})) << "values of " << count << " heads from " << first << " on";
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(got[i + 1], own({whole.begin() + 1, whole.end()}, i)) << "gradient " << i << ", " << dtype;
  }
}

TEST(AttentionHeads, GroupsHaveTheBitsOfTheWhole) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    groups_equal_the_whole({.heads = 6, .kv_heads = 3, .head_dim = 20, .dropout = 0.3, .key = random_key(1, 2, "a")}, false,
                           dtype);
    groups_equal_the_whole(
        {.heads = 3, .kv_heads = 3, .head_dim = 17, .causal = false, .dropout = 0.3, .key = random_key(1, 2, "b")}, false,
        dtype);
    groups_equal_the_whole(
        {.heads = 3, .kv_heads = 3, .head_dim = 17, .causal = false, .dropout = 0.3, .key = random_key(1, 2, "c")}, true,
        dtype);
  }
}

TEST(AttentionHeads, ANegativeFirstHeadIsAnError) {
  Context context;
  const Tensor qkv = Tensor::zeros(context, {4, 12}, DType::f32);
  const Rows rows = make_rows(context, std::vector<std::int64_t>{4}, std::vector<std::int64_t>{0});
  EXPECT_THROW(attention(qkv, rows, {.heads = 1, .kv_heads = 1, .head_dim = 4, .first_head = -1}), Error);
}

}  // namespace
}  // namespace chorus::testing
