#include <chorus/core/rng.h>
#include <chorus/tensor/kernels/attention_dropout.h>
#include <chorus/tensor/ops/attention.h>
#include <gmock/gmock.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "op_cases/op_case.h"

namespace chorus::testing {
namespace {

/// Lengths that sum to `rows`: empty, single, within a vector, across vectors, across blocks.
std::vector<std::int64_t> lengths_of(std::int64_t rows) {
  const std::vector<std::int64_t> pattern = {17, 0, 3, 1, 65, 130};
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i == 0 || rows > 0; ++i) {
    lengths.push_back(std::min(pattern[i % pattern.size()], rows));
    rows -= lengths.back();
  }
  return lengths;
}
Rows rows_of(Context& context, const std::vector<std::int64_t>& lengths, std::int64_t first_id = 40) {
  std::vector<std::int64_t> ids;
  for (std::size_t s = 0; s < lengths.size(); ++s) ids.push_back(first_id + 3 * static_cast<std::int64_t>(s));
  return make_rows(context, lengths, ids);
}

/// Whether a probability stays, by the definition in attention.h.
double dropout_factor(const AttentionOptions& o, std::int64_t id, std::int64_t i, std::int64_t j, std::int64_t h) {
  if (o.dropout == 0) return 1;
  const auto block = philox(o.key, {static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(i),
                                    static_cast<std::uint32_t>(j / 8), static_cast<std::uint32_t>(h)});
  const std::uint32_t draw = block[static_cast<std::size_t>(j % 8 / 2)] >> (j % 2 * 16) & 0xffffu;
  const double threshold = std::round(o.dropout * 65536);
  return draw < threshold ? 0 : 65536 / (65536 - threshold);
}

struct Relative {
  const std::vector<double>&u, &v, &p;
  std::int64_t reach;
};

/// Row by row with all scores at hand.
std::vector<double> naive(const std::vector<double>& qkv, const Relative* relative, const std::vector<std::int64_t>& lengths,
                          const AttentionOptions& o) {
  const std::int64_t d = o.head_dim, stride = (o.heads + 2 * o.kv_heads) * d, features = o.heads * d;
  std::vector<double> y(static_cast<std::size_t>(qkv.size()) / static_cast<std::size_t>(stride) *
                        static_cast<std::size_t>(features));
  std::int64_t begin = 0;
  for (std::size_t s = 0; s < lengths.size(); begin += lengths[s++])
    for (std::int64_t h = 0; h < o.heads; ++h)
      for (std::int64_t i = 0; i < lengths[s]; ++i) {
        const std::int64_t kv = h / (o.heads / o.kv_heads), seen = o.causal ? i + 1 : lengths[s];
        const double* q = qkv.data() + (begin + i) * stride + h * d;
        std::vector<double> p(static_cast<std::size_t>(seen));
        double total = 0;
        for (std::int64_t j = 0; j < seen; ++j) {
          const double* k = qkv.data() + (begin + j) * stride + (o.heads + kv) * d;
          double score = 0;
          for (std::int64_t c = 0; c < d; ++c) {
            const auto at = static_cast<std::size_t>(h * d + c);
            score += (q[c] + (relative ? relative->u[at] : 0)) * k[c];
            if (relative)
              score += (q[c] + relative->v[at]) *
                       relative->p[static_cast<std::size_t>((relative->reach - 1 - (i - j)) * features) + at];
          }
          p[static_cast<std::size_t>(j)] = score / std::sqrt(static_cast<double>(d));
        }
        const double top = *std::max_element(p.begin(), p.end());
        for (double& x : p) total += x = std::exp(x - top);
        for (std::int64_t j = 0; j < seen; ++j) {
          const double* v = qkv.data() + (begin + j) * stride + (o.heads + o.kv_heads + kv) * d;
          const double weight =
              p[static_cast<std::size_t>(j)] / total * dropout_factor(o, 40 + 3 * static_cast<std::int64_t>(s), i, j, h);
          for (std::int64_t c = 0; c < d; ++c) y[static_cast<std::size_t>((begin + i) * features + h * d + c)] += weight * v[c];
        }
      }
  return y;
}

OpCase attention_case(const std::string& name, AttentionOptions o,
                      std::vector<Size> sizes = {{0, 16}, {1, 1}, {21, 36}, {86, 17}, {216, 20}, {30, 130}}) {
  return {.name = name,
          .shapes =
              [o](Size s) {
                return std::vector<Shape>{{s.rows, (o.heads + 2 * o.kv_heads) * s.cols}};
              },
          .op =
              [o](Context& context, const Tensors& x) mutable {
                o.head_dim = static_cast<int>(x[0].size(1) / (o.heads + 2 * o.kv_heads));
                return attention(x[0], rows_of(context, lengths_of(x[0].size(0))), o);
              },
          .reference =
              [o](const Values& x, Size s) mutable {
                o.head_dim = static_cast<int>(s.cols);
                return naive(x[0], nullptr, lengths_of(s.rows), o);
              },
          .sizes = std::move(sizes),
          .threads_size = {600, 48},
          .terms = [](Size s) { return static_cast<double>(s.cols); },
          .grad_terms = [](Size s) { return static_cast<double>(s.cols + s.rows); }};
}

TEST(Attention, Causal) { check(attention_case("attention causal", {.heads = 2, .kv_heads = 2})); }
TEST(Attention, Bidirectional) {
  check(attention_case("attention bidirectional", {.heads = 2, .kv_heads = 2, .causal = false}));
}
TEST(Attention, Grouped4by2) { check(attention_case("attention 4/2", {.heads = 4, .kv_heads = 2}, {{86, 17}, {216, 24}})); }
TEST(Attention, Grouped6by3) {
  check(attention_case("attention 6/3", {.heads = 6, .kv_heads = 3, .causal = false}, {{86, 17}, {216, 24}}));
}
TEST(Attention, Grouped4by1) { check(attention_case("attention 4/1", {.heads = 4, .kv_heads = 1}, {{86, 17}, {216, 24}})); }
TEST(Attention, Dropout) {
  check(attention_case("attention dropout", {.heads = 4, .kv_heads = 2, .dropout = 0.3, .key = random_key(1, 2, "x")}));
}
TEST(Attention, BidirectionalDropout) {
  check(attention_case("attention bidirectional dropout",
                       {.heads = 2, .kv_heads = 2, .causal = false, .dropout = 0.1, .key = random_key(1, 2, "y")}));
}

OpCase relative_case(const std::string& name, AttentionOptions o, std::int64_t spare) {
  const auto reach = [spare](std::int64_t rows) {
    const auto lengths = lengths_of(rows);
    return spare + std::max<std::int64_t>(1, *std::max_element(lengths.begin(), lengths.end()));
  };
  // With dropout, gradients of a single row's scores are zero up to the rounding of two terms that cancel.
  const std::vector<Size> dropped = {{21, 36}, {216, 17}};
  return {.name = name,
          .shapes =
              [=](Size s) {
                return std::vector<Shape>{{s.rows, 3 * o.heads * s.cols},
                                          {o.heads * s.cols},
                                          {o.heads * s.cols},
                                          {2 * reach(s.rows) - 1, o.heads * s.cols}};
              },
          .op =
              [o](Context& context, const Tensors& x) mutable {
                o.head_dim = static_cast<int>(x[0].size(1) / (3 * o.heads));
                return relative_attention(x[0], x[1], x[2], x[3], rows_of(context, lengths_of(x[0].size(0))), o);
              },
          .reference =
              [=](const Values& x, Size s) {
                AttentionOptions sized = o;
                sized.head_dim = static_cast<int>(s.cols);
                const Relative relative{x[1], x[2], x[3], reach(s.rows)};
                return naive(x[0], &relative, lengths_of(s.rows), sized);
              },
          .sizes = o.dropout > 0 ? dropped : std::vector<Size>{{0, 16}, {1, 1}, {86, 17}, {216, 20}, {30, 130}},
          .threads_size = {600, 48},
          .terms = [](Size s) { return static_cast<double>(s.cols); },
          .grad_terms = [](Size s) { return static_cast<double>(s.cols + s.rows); }};
}

TEST(RelativeAttention, JustReaching) {
  check(relative_case("relative_attention", {.heads = 2, .kv_heads = 2, .causal = false}, 0));
}
TEST(RelativeAttention, SpareReachAndDropout) {
  check(relative_case("relative_attention dropout",
                      {.heads = 3, .kv_heads = 3, .causal = false, .dropout = 0.2, .key = random_key(3, 4, "z")}, 5));
}

Tensor values(Context& context, const Shape& shape, std::uint64_t stream, DType dtype = DType::f32, double range = 1) {
  Tensor t = Tensor::empty(context, shape, dtype);
  dispatch_floating(dtype, "values", [&]<class T>() {
    for (std::int64_t i = 0; i < t.numel(); ++i)
      t.as<T>()[i] = static_cast<T>(test_value(stream, static_cast<std::uint64_t>(i), range));
  });
  return t;
}

struct Result {
  std::vector<double> y, dqkv;
};
Result run(Context& context, const Tensor& x, const Tensor& dy, const Rows& rows, const AttentionOptions& o) {
  Tensor qkv = x.clone();
  const Tensor grad = Tensor::zeros(context, qkv.shape(), wide(qkv.dtype()));
  make_leaf(qkv, grad);
  const Tensor y = attention(qkv, rows, o);
  backward(y, {.cotangent = dy.clone()});
  return {y.to_doubles(), grad.to_doubles()};
}

TEST(Attention, SequenceAloneEqualsSequenceInBatchBitByBit) {
  for (const bool causal : {true, false})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
      Context context;
      const AttentionOptions o{
          .heads = 4, .kv_heads = 2, .head_dim = 36, .causal = causal, .dropout = 0.25, .key = random_key(5, "d")};
      const std::vector<std::int64_t> lengths = {65, 0, 130, 1, 17, 3};
      const std::vector<std::int64_t> ids = {7, 8, (std::int64_t{1} << 40) + 3, 0, 9, 11};
      const Tensor qkv = values(context, {216, 8 * 36}, 1, dtype), dy = values(context, {216, 4 * 36}, 2, dtype);
      const Result all = run(context, qkv, dy, make_rows(context, lengths, ids), o);
      std::int64_t begin = 0;
      for (std::size_t s = 0; s < lengths.size(); begin += lengths[s++]) {
        const std::int64_t end = begin + lengths[s];
        const Result one = run(context, qkv.rows_view(begin, end), dy.rows_view(begin, end),
                               make_rows(context, std::vector{lengths[s]}, std::vector{ids[s]}), o);
        const auto part = [&](const std::vector<double>& x, std::int64_t width) {
          return std::vector<double>(x.begin() + begin * width, x.begin() + end * width);
        };
        expect_close("value of sequence " + std::to_string(s), part(all.y, 4 * 36), one.y, 0);
        expect_close("gradient of sequence " + std::to_string(s), part(all.dqkv, 8 * 36), one.dqkv, 0);
      }
    }
}

/// Long sequences are worked on in parts. Gradients have the derivative of the value along any direction, and the same bits
/// whatever the number of threads.
TEST(Attention, LongSequencesHaveTheGradientOfTheirValue) {
  const std::vector<std::int64_t> lengths{40, 2100}, ids{40, 43};
  constexpr std::int64_t rows = 40 + 2100, reach = 2100;
  for (const bool is_relative : {false, true}) {
    const AttentionOptions o{.heads = is_relative ? 1 : 2, .kv_heads = 1, .head_dim = 2, .causal = !is_relative};
    const std::int64_t features = o.heads * o.head_dim;
    const std::vector<Shape> shapes{
        {rows, features + 2 * o.kv_heads * o.head_dim}, {features}, {features}, {2 * reach - 1, features}};
    const auto given = [&](Context& context, std::size_t i, std::uint64_t stream) {
      return values(context, shapes[i], stream + i, DType::f64);
    };
    const std::size_t inputs = is_relative ? 4 : 1;
    const int before = omp_get_max_threads();
    std::vector<std::vector<double>> gradients;
    for (const int threads : {1, 2, 5}) {
      omp_set_num_threads(threads);
      Context context;
      std::vector<Tensor> x;
      for (std::size_t i = 0; i < inputs; ++i) x.push_back(given(context, i, 1)), make_leaf(x.back());
      const Rows all = make_rows(context, lengths, ids);
      backward(is_relative ? relative_attention(x[0], x[1], x[2], x[3], all, o) : attention(x[0], all, o),
               {.cotangent = values(context, {rows, features}, 9, DType::f64)});
      std::vector<std::vector<double>> now;
      for (const Tensor& leaf : x) now.push_back(leaf.node()->sink.grad.to_doubles());
      if (gradients.empty()) gradients = now;
      EXPECT_EQ(gradients, now) << threads << " threads";
    }
    omp_set_num_threads(before);

    Context context;
    const auto cotangent = values(context, {rows, features}, 9, DType::f64).to_doubles();
    double expected = 0, slope = 0, size = 0;
    const double step = 1e-5;
    for (const double side : {-1.0, 1.0}) {
      std::vector<std::vector<double>> x;
      for (std::size_t i = 0; i < inputs; ++i) {
        x.push_back(given(context, i, 1).to_doubles());
        const auto direction = given(context, i, 20).to_doubles();
        for (std::size_t k = 0; k < direction.size(); ++k) {
          x[i][k] += side * step * direction[k];
          if (side > 0) slope += gradients[i][k] * direction[k], size += std::abs(gradients[i][k] * direction[k]);
        }
      }
      std::optional<Relative> relative;
      if (is_relative) relative.emplace(Relative{x[1], x[2], x[3], reach});
      const auto y = naive(x[0], relative ? &*relative : nullptr, lengths, o);
      for (std::size_t k = 0; k < y.size(); ++k) expected += side * y[k] * cotangent[k] / (2 * step);
    }
    EXPECT_NEAR(slope, expected, 1e-7 * size) << "relative " << is_relative;
  }
}

TEST(Attention, DropoutKeepsTheExpectedShare) {
  Context context;
  AttentionOptions o{.heads = 1, .kv_heads = 1, .head_dim = 4, .dropout = 0.25, .key = random_key(6, "share")};
  std::vector<float> factors(static_cast<std::size_t>(kernel::block_keys<float> * kernel::block_queries<float>));
  std::int64_t kept = 0, drawn = 0;
  for (std::uint32_t sample = 0; sample < 40; ++sample) {
    kernel::fill_dropout(o, sample, 0, 64, kernel::block_queries<float>, 128, kernel::block_keys<float>, factors.data());
    for (const float f : factors) {
      EXPECT_TRUE(f == 0 || std::abs(f - 4.0 / 3) < 1e-6) << f;
      kept += f != 0;
      ++drawn;
    }
  }
  const double share = static_cast<double>(kept) / static_cast<double>(drawn),
               deviation = std::sqrt(0.25 * 0.75 / static_cast<double>(drawn));
  EXPECT_NEAR(share, 0.75, 4 * deviation);
}

TEST(Attention, LargeScoresStayFinite) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    Context context;
    const AttentionOptions o{.heads = 1, .kv_heads = 1, .head_dim = 16};
    const Tensor qkv = values(context, {150, 48}, 3, dtype, 128);
    const Tensor y = attention(qkv, rows_of(context, {150}), o);
    // Scores reach 128^2 * 16 / 4 = 65536, so a probability's relative error is some 65536 * eps.
    const double eps = dtype == DType::f64 ? 0x1p-52 : 0x1p-23;
    expect_close("large scores", y.to_doubles(), naive(qkv.to_doubles(), nullptr, {150}, o), 65536 * eps);
  }
}

TEST(CachedAttention, EqualsTheLastRowOfAttention) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    Context context;
    const NoGrad quiet(context);
    const AttentionOptions o{.heads = 6, .kv_heads = 3, .head_dim = 36};
    const std::int64_t capacity = 140, batch = 3, stride = 12 * 36;
    const Tensor x = values(context, {batch * capacity, stride}, 4, dtype);
    Tensor keys = Tensor::empty(context, {batch, capacity, 3 * 36}, dtype),
           cached = Tensor::empty(context, keys.shape(), dtype);
    const auto copy = [&](const Tensor& to, std::int64_t at, std::int64_t row, std::int64_t feature, std::int64_t n) {
      std::memcpy(static_cast<char*>(to.data()) + at * n * static_cast<std::int64_t>(size_of(dtype)),
                  static_cast<char*>(x.data()) + (row * stride + feature) * static_cast<std::int64_t>(size_of(dtype)),
                  static_cast<std::size_t>(n) * size_of(dtype));
    };
    for (std::int64_t r = 0; r < batch * capacity; ++r) {
      copy(keys, r, r, 6 * 36, 3 * 36);
      copy(cached, r, r, 9 * 36, 3 * 36);
    }
    for (const std::int64_t length : {1, 2, 15, 16, 17, 63, 64, 65, 131}) {
      const std::vector<std::int64_t> lengths = {length, std::max<std::int64_t>(1, length / 2), length + 9};
      std::vector<double> want;
      Tensor q = Tensor::empty(context, {batch, 6 * 36}, dtype);
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t n = lengths[static_cast<std::size_t>(b)];
        copy(q, b, b * capacity + n - 1, 0, 6 * 36);
        const auto y = attention(x.rows_view(b * capacity, b * capacity + n), rows_of(context, {n}), o).to_doubles();
        want.insert(want.end(), y.end() - 6 * 36, y.end());
      }
      const Tensor counts = Tensor::of(context, {batch}, std::vector<std::int32_t>(lengths.begin(), lengths.end()));
      const auto got = cached_attention(q, keys, cached, counts, o).to_doubles();
      // bf16: both round an almost equal sum once, so at most one step of 2^-8 apart.
      expect_close("cached_attention", got, want, dtype == DType::f64 ? 1e-14 : dtype == DType::f32 ? 2e-6 : 1.0 / 256);
    }
  }
}

TEST(CachedAttention, EmptyCacheGivesZero) {
  Context context;
  const AttentionOptions o{.heads = 2, .kv_heads = 1, .head_dim = 20};
  const Tensor cache = values(context, {1, 5, 20}, 5), q = values(context, {1, 40}, 6);
  const Tensor none = Tensor::of(context, {1}, std::vector<std::int32_t>{0});
  EXPECT_EQ(cached_attention(q, cache, cache, none, o).to_doubles(), std::vector<double>(40, 0.0));
}

template <class F>
std::string error_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Attention, ErrorsNameTheValues) {
  using ::testing::HasSubstr;
  Context context;
  const Tensor x = values(context, {4, 48}, 7);
  const Rows rows = rows_of(context, {4});
  const AttentionOptions o{.heads = 4, .kv_heads = 2, .head_dim = 6, .causal = false};
  EXPECT_THAT(error_of([&] { attention(values(context, {4, 50}, 1), rows, o); }), HasSubstr("need 48 features"));
  EXPECT_THAT(error_of([&] { attention(x, rows_of(context, {5}), o); }), HasSubstr("for 5 rows"));
  EXPECT_THAT(error_of([&] { attention(x, rows, {.heads = 4, .kv_heads = 3, .head_dim = 6}); }),
              HasSubstr("3 key/value heads"));
  EXPECT_THAT(error_of([&] { attention(x, rows, {.heads = 4, .kv_heads = 2, .head_dim = 6, .dropout = 1}); }),
              HasSubstr("dropout is 1"));
  const Tensor bias = values(context, {24}, 1), p = values(context, {5, 24}, 1);
  EXPECT_THAT(error_of([&] { relative_attention(x, bias, bias, p, rows, o); }), HasSubstr("as many key/value heads"));
  const AttentionOptions full{.heads = 4, .kv_heads = 4, .head_dim = 4, .causal = false};
  const Tensor b16 = values(context, {16}, 1);
  EXPECT_THAT(error_of([&] {
                relative_attention(x, b16, b16, values(context, {5, 16}, 1), rows, full);
              }),
              HasSubstr("2 * reach - 1"));
  const Tensor cache = values(context, {4, 3, 12}, 1), q = values(context, {4, 24}, 1);
  const Tensor lengths = Tensor::of(context, {4}, std::vector<std::int32_t>{1, 2, 4, 1});
  EXPECT_THAT(error_of([&] { cached_attention(q, cache, cache, lengths, o); }), HasSubstr("length 4 in a cache of 3 rows"));
}

}  // namespace
}  // namespace chorus::testing
