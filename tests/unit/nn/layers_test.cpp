// Where a plan may change a module: ports, slots and units. And what the layers promise beside their ops.
#include <chorus/core/rng.h>
#include <chorus/nn/layers/attention.h>
#include <chorus/nn/layers/feed_forward.h>
#include <chorus/nn/materialize.h>
#include <chorus/tensor/ops/pointwise.h>
#include <op_cases/op_case.h>

#include <cmath>

namespace chorus::testing {
namespace {

template <class M>
struct Built {
  Context context;
  M module;
  ParamStore store;
  explicit Built(M m) : module(std::move(m)) {
    store = materialize(module, context, {.dtype = DType::f64, .seed = 3, .freeze = {}});
    // Biases start at zero, where they could be left out unseen.
    fill_normal(random_key(5, "values"), 0, store.values.template span<double>(), 0.0, 0.5);
  }
  Tensor input(std::int64_t rows, std::int64_t cols) {
    std::vector<double> values(static_cast<std::size_t>(rows * cols));
    fill_normal(random_key(6, "input"), 0, std::span<double>(values), 0.0, 1.0);
    return Tensor::of(context, {rows, cols}, values);
  }
  Rows rows(const std::vector<std::int64_t>& lengths) {
    std::vector<std::int64_t> ids(lengths.size());
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(10 + i);
    return make_rows(context, lengths, ids);
  }
};

/// x [rows, in] times the transpose of w [out, in], in plain loops.
std::vector<double> product(const std::vector<double>& x, const std::vector<double>& w, std::size_t in) {
  std::vector<double> y;
  for (std::size_t r = 0; r < x.size() / in; ++r)
    for (std::size_t o = 0; o < w.size() / in; ++o) {
      double sum = 0;
      for (std::size_t i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
      y.push_back(sum);
    }
  return y;
}

TEST(Ports, LinearAppliesInAndAddsTheBiasAfterOut) {
  Built built(Linear(4, 3));
  const Tensor x = built.input(5, 4);
  const auto w = built.module.weight.value.to_doubles(), b = built.module.bias.value.to_doubles();
  const auto want = [&](double in, double out) {
    auto y = product(x.to_doubles(), w, 4);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = in * out * y[i] + b[i % 3];
    return y;
  };
  expect_close("no hooks", built.module(x).to_doubles(), want(1, 1), 1e-14);
  built.module.in.hook = [](const Tensor& t) { return scale(t, 2); };
  expect_close("in", built.module(x).to_doubles(), want(2, 1), 1e-14);
  built.module.out.hook = [](const Tensor& t) { return scale(t, 3); };
  expect_close("in and out", built.module(x).to_doubles(), want(2, 3), 1e-14);
}

TEST(Ports, HooksTakePartInBackward) {
  Built built(Linear(4, 3));
  const Tensor x = built.input(5, 4);
  const auto gradients = [&] {
    built.store.start_step();
    backward(built.module(x));
    built.store.finish_step();
    return std::pair(built.module.weight.grad().to_doubles(), built.module.bias.grad().to_doubles());
  };
  const auto [weight, bias] = gradients();
  built.module.in.hook = [](const Tensor& t) { return scale(t, 2); };
  built.module.out.hook = [](const Tensor& t) { return scale(t, 3); };
  const auto [hooked_weight, hooked_bias] = gradients();
  expect_close("weight", hooked_weight, map(weight, [](double g) { return 6 * g; }), 1e-14);
  expect_close("bias", hooked_bias, bias, 1e-14);  // an all-reduce in `out` would count it once for every rank
}

TEST(Ports, StackedLinearSharesItsInPort) {
  Built built(StackedLinear(4, {{"q", 3}, {"k", 2}}));
  const Tensor x = built.input(5, 4);
  const auto& parts = built.module.weight.parts;
  const auto q = product(x.to_doubles(), parts[0].second.value.to_doubles(), 4),
             k = product(x.to_doubles(), parts[1].second.value.to_doubles(), 4);
  const auto q_bias = built.module.bias.parts[0].second.value.to_doubles(),
             k_bias = built.module.bias.parts[1].second.value.to_doubles();
  built.module.in.hook = [](const Tensor& t) { return scale(t, 2); };
  std::vector<double> want;
  for (std::size_t r = 0; r < 5; ++r) {
    for (std::size_t c = 0; c < 3; ++c) want.push_back(2 * q[3 * r + c] + q_bias[c]);
    for (std::size_t c = 0; c < 2; ++c) want.push_back(2 * k[2 * r + c] + k_bias[c]);
  }
  expect_close("q and k side by side", built.module(x).to_doubles(), want, 1e-14);
}

TEST(Ports, EmbeddingAppliesOut) {
  Built built(Embedding(7, 3, Init::gaussian(1)));
  const Tensor ids = Tensor::of(built.context, {3}, std::vector<std::int32_t>{6, 0, 6});
  built.module.out.hook = [](const Tensor& t) { return scale(t, -1); };
  const auto table = built.module.weight.value.to_doubles();
  std::vector<double> want;
  for (const std::size_t id : {6, 0, 6})
    for (std::size_t c = 0; c < 3; ++c) want.push_back(-table[3 * id + c]);
  EXPECT_EQ(built.module(ids).to_doubles(), want);
}

TEST(Slots, ReplacedCoreOfAttentionIsUsed) {
  Built built(RotaryAttention(6, {.heads = 3, .kv_heads = 1, .head_dim = 2, .bias = true}));
  const Tensor x = built.input(5, 6);
  const Rows rows = built.rows({2, 3});
  const auto own = built.module(x, rows, {}).to_doubles();
  int calls = 0;
  built.module.core.replaced = [&](const Tensor& qkv, const Rows& r, const AttentionOptions& options) {
    ++calls;
    EXPECT_EQ(qkv.shape(), (Shape{5, 10}));
    EXPECT_EQ(options.heads, 3);
    EXPECT_TRUE(options.causal);
    return attention(qkv, r, options);
  };
  EXPECT_EQ(built.module(x, rows, {}).to_doubles(), own);
  EXPECT_EQ(calls, 1);
  built.module.core.replaced = [&](const Tensor&, const Rows&, const AttentionOptions&) {
    return Tensor::zeros(built.context, {5, 6}, DType::f64);
  };
  const auto bias = built.module.out.bias.value.to_doubles(), y = built.module(x, rows, {}).to_doubles();
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i % 6]);
}

TEST(Slots, ReplacedCoreOfRelativeAttentionIsUsed) {
  Built built(RelativeAttention(6, {.heads = 3}));
  built.module.core.replaced = [&](const Tensor&, const Tensor& u, const Tensor&, const Tensor& p, const Rows&,
                                   const AttentionOptions& options) {
    EXPECT_EQ(u.shape(), (Shape{6}));
    EXPECT_EQ(p.shape(), (Shape{9, 6}));
    EXPECT_FALSE(options.causal);
    return Tensor::zeros(built.context, {5, 6}, DType::f64);
  };
  const Tensor x = built.input(5, 6), encoding = relative_encoding(built.context, 5, 6, DType::f64);
  const auto bias = built.module.out.bias.value.to_doubles(), y = built.module(x, encoding, built.rows({5}), {}).to_doubles();
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i % 6]);
}

TEST(Units, WrapGetsTheBodyAndItsInput) {
  Context context;
  const Tensor x = Tensor::of(context, {2}, std::vector<double>{1, 2});
  const auto body = [](const Tensor& t) { return scale(t, 5); };
  Unit unit;
  EXPECT_EQ(unit(x, body).to_doubles(), (std::vector<double>{5, 10}));
  unit.wrap = [](const std::function<Tensor(Tensor)>& inner, const Tensor& t) { return inner(inner(t)); };
  EXPECT_EQ(unit(x, body).to_doubles(), (std::vector<double>{25, 50}));
  unit.wrap = [](const std::function<Tensor(Tensor)>&, Tensor t) { return t; };
  EXPECT_EQ(unit(x, body).to_doubles(), (std::vector<double>{1, 2}));
}

TEST(Windows, DropoutOfAPartHasTheMaskOfTheWhole) {
  Context context;
  Dropout layer{.p = 0.4};
  layer.path = path_hash("a.dropout");
  const Pass pass{.training = true, .seed = 2, .step = 3};
  const Rows rows = make_rows(context, std::vector<std::int64_t>{3, 4}, std::vector<std::int64_t>{8, 9});
  const Tensor whole = Tensor::full(context, {7, 30}, DType::f64, 0.5), part = Tensor::full(context, {4, 11}, DType::f64, 0.5);
  const auto of_part = [](const Tensor& t) {
    std::vector<double> values;
    for (std::int64_t r = 2; r < 6; ++r)
      for (std::int64_t c = 13; c < 24; ++c) values.push_back(t.as<double>()[r * 30 + c]);
    return values;
  };
  const auto want = of_part(layer(whole, rows, pass)), silu_want = of_part(layer.after_silu(whole, rows, pass));
  layer.window = [&](const Tensor& x, const Rows& of) {
    EXPECT_EQ(x.shape(), part.shape());
    EXPECT_EQ(of.count(), 7);
    return Window{.first_row = 2, .first_feature = 13};
  };
  EXPECT_EQ(layer(part, rows, pass).to_doubles(), want);
  EXPECT_EQ(layer.after_silu(part, rows, pass).to_doubles(), silu_want);
  EXPECT_EQ(layer(part, rows, {}).data(), part.data()) << "evaluation";
}

TEST(Windows, EmbeddingOfAPartLeavesOtherWordsAtZero) {
  Built built(Embedding(4, 3, Init::gaussian(1)));
  Param& weight = built.module.weight;
  weight.global[0] = 9, weight.box.begin[0] = 2;
  const Tensor ids = Tensor::of(built.context, {3}, std::vector<std::int32_t>{8, 5, 1});
  auto want = built.module.weight.value.to_doubles();
  want.erase(want.begin(), want.end() - 3);
  want.insert(want.begin(), 3, 0.0);
  want.insert(want.end(), 3, 0.0);
  EXPECT_EQ(built.module(ids).to_doubles(), want);
}

TEST(RelativeEncoding, HoldsSinusoidsOfFallingOffsets) {
  Context context;
  const std::int64_t reach = 4, features = 6;
  const Tensor table = relative_encoding(context, reach, features, DType::f64);
  ASSERT_EQ(table.shape(), (Shape{7, 6}));
  std::vector<double> want;
  for (int offset = 3; offset >= -3; --offset)
    for (int pair = 0; pair < 3; ++pair) {
      const double angle = offset / std::pow(10000.0, 2.0 * pair / 6);
      want.push_back(std::sin(angle));
      want.push_back(std::cos(angle));
    }
  expect_close("table", table.to_doubles(), want, 1e-15);
  // By hand: offset 0 is (0, 1) everywhere; offset 1 of the fastest pair is (sin 1, cos 1).
  const auto t = table.to_doubles();
  for (std::size_t c = 0; c < 6; ++c) EXPECT_EQ(t[3 * 6 + c], static_cast<double>(c % 2));
  EXPECT_NEAR(t[2 * 6], 0.8414709848078965, 1e-15);
  EXPECT_NEAR(t[2 * 6 + 1], 0.5403023058681398, 1e-15);
  EXPECT_THROW(relative_encoding(context, 4, 5, DType::f64), Error);
}

/// Prompts of different lengths, then rows one by one: the same values as one pass over everything.
TEST(RotaryAttention, PrefillAndDecodeEqualTheFullPass) {
  Built built(RotaryAttention(12, {.heads = 6, .kv_heads = 2, .head_dim = 4, .bias = true}));
  const std::vector<std::int64_t> lengths{7, 5, 9}, prompts{4, 1, 6};
  const Rows rows = built.rows(lengths);
  const Tensor x = built.input(21, 12);
  const auto full = built.module(x, rows, {}).to_doubles();
  const auto all = x.to_doubles();
  const auto row = [&](const std::vector<double>& from, std::size_t b, std::int64_t t) {
    const auto at = from.begin() + (rows.begin(static_cast<std::int64_t>(b)) + t) * 12;
    return std::vector<double>(at, at + 12);
  };
  const auto append = [](std::vector<double>& to, const std::vector<double>& more) {
    to.insert(to.end(), more.begin(), more.end());
  };

  NoGrad quiet(built.context);
  KeyValueCache cache{Tensor::full(built.context, {3, 10, 8}, DType::f64, NAN),
                      Tensor::full(built.context, {3, 10, 8}, DType::f64, NAN)};
  std::vector<double> prompt, want;
  for (std::size_t b = 0; b < 3; ++b)
    for (std::int64_t t = 0; t < prompts[b]; ++t) {
      append(prompt, row(all, b, t));
      append(want, row(full, b, t));
    }
  const Tensor states = built.module.prefill(Tensor::of(built.context, {11, 12}, prompt), built.rows(prompts), cache);
  expect_close("prefill", states.to_doubles(), want, 1e-13);
  for (std::int64_t n = 0; n < 3; ++n) {
    std::vector<double> next, next_want;
    std::vector<std::int32_t> seen;
    for (std::size_t b = 0; b < 3; ++b) {
      append(next, row(all, b, prompts[b] + n));
      append(next_want, row(full, b, prompts[b] + n));
      seen.push_back(static_cast<std::int32_t>(prompts[b] + n));
    }
    Rows one = built.rows({1, 1, 1});
    one.positions.copy_from_host(seen.data());
    const Tensor lengths_so_far = Tensor::of(built.context, {3}, seen);
    const Tensor y = built.module.decode(Tensor::of(built.context, {3, 12}, next), one, cache, lengths_so_far);
    expect_close("decode, row " + std::to_string(n), y.to_doubles(), next_want, 1e-13);
  }
}

TEST(RotaryAttention, CacheThatIsFullIsAnError) {
  Built built(RotaryAttention(4, {.heads = 1, .kv_heads = 1, .head_dim = 4}));
  NoGrad quiet(built.context);
  KeyValueCache cache{Tensor::zeros(built.context, {1, 2, 4}, DType::f64), Tensor::zeros(built.context, {1, 2, 4}, DType::f64)};
  EXPECT_THROW(built.module.prefill(built.input(3, 4), built.rows({3}), cache), Error);
}

}  // namespace
}  // namespace chorus::testing
