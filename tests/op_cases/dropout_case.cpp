#include <chorus/tensor/ops/dropout.h>
#include <chorus/tensor/ops/pointwise.h>

#include <cmath>

#include "op_cases/op_case.h"

namespace chorus::testing {
namespace {

const RandomKey key = random_key(3, 5, "encoder.dropout");

/// Two sequences, one third and two thirds of the rows.
Rows two_sequences(Context& context, std::int64_t rows) {
  const std::vector<std::int64_t> lengths{rows / 3, rows - rows / 3}, ids{(std::int64_t{1} << 33) + 7, 12};
  return make_rows(context, lengths, ids);
}

/// The definition, drawn one element at a time.
bool kept(std::int64_t id, std::int64_t position, std::int64_t c, double p) {
  const auto block = philox(key, {static_cast<std::uint32_t>(id), static_cast<std::uint32_t>(id >> 32),
                                  static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(c / 8)});
  const std::uint32_t word = block[static_cast<std::size_t>(c % 8 / 2)];
  return (c % 2 ? word >> 16 : word & 0xffff) >= static_cast<std::uint32_t>(std::lround(p * 65536));
}

std::vector<double> mask(Context& context, const Rows& rows, std::int64_t n, double p, RandomKey with = key) {
  return dropout(Tensor::full(context, {rows.count(), n}, DType::f64, 1), rows, p, with).to_doubles();
}

TEST(Dropout, Case) {
  check(
      {.name = "dropout",
       .shapes =
           [](Size s) {
             return std::vector<Shape>{{s.rows, s.cols}};
           },
       .op = [](Context& context, const Tensors& x) { return dropout(x[0], two_sequences(context, x[0].size(0)), 0.25, key); },
       .reference =
           [](const Values& x, Size s) {
             std::vector<double> y;
             for (std::int64_t r = 0; r < s.rows; ++r)
               for (std::int64_t c = 0; c < s.cols; ++c) {
                 const bool first = r < s.rows / 3;
                 const bool keep = kept(first ? (std::int64_t{1} << 33) + 7 : 12, first ? r : r - s.rows / 3, c, 0.25);
                 y.push_back(keep ? x[0][static_cast<std::size_t>(r * s.cols + c)] / 0.75 : 0);
               }
             return y;
           },
       .sizes = {{0, 17}, {1, 1}, {3, 17}, {65, 130}, {4, 1100}},
       .grad_terms = [](Size) { return 1.0; }});
}

TEST(SiluDropout, Case) {
  const auto in_one = [](Context& context, const Tensors& x) {
    return silu_dropout(x[0], two_sequences(context, x[0].size(0)), 0.25, key);
  };
  check({.name = "silu_dropout",
         .shapes =
             [](Size s) {
               return std::vector<Shape>{{s.rows, s.cols}};
             },
         .op = in_one,
         .reference =
             [](const Values& x, Size s) {
               Context context;
               const Tensor in = Tensor::of(context, {s.rows, s.cols}, x[0]);
               return dropout(silu(in), two_sequences(context, s.rows), 0.25, key).to_doubles();
             },
         .sizes = {{0, 17}, {1, 1}, {3, 17}, {65, 130}, {4, 1100}},
         .grad_terms = [](Size) { return 1.0; }});
}

/// A window that begins within a sequence and within a block of draws.
OpCase window_case(const char* name, Tensor (*op)(const Tensor&, const Rows&, double, RandomKey, std::optional<Window>)) {
  constexpr Window window{.first_row = 2, .first_feature = 13};
  const auto whole_of = [](std::int64_t rows) { return rows + 5; };
  return {.name = name,
          .shapes =
              [](Size s) {
                return std::vector<Shape>{{s.rows, s.cols}};
              },
          .op = [=](Context& context,
                    const Tensors& x) { return op(x[0], two_sequences(context, whole_of(x[0].size(0))), 0.25, key, window); },
          .reference =
              [=](const Values& x, Size s) {
                Context context;
                const Rows rows = two_sequences(context, whole_of(s.rows));
                Tensor wide = Tensor::zeros(context, {rows.count(), window.first_feature + s.cols}, DType::f64);
                const auto at = [&](std::int64_t r, std::int64_t c) {
                  return (window.first_row + r) * wide.size(1) + window.first_feature + c;
                };
                for (std::int64_t r = 0; r < s.rows; ++r)
                  for (std::int64_t c = 0; c < s.cols; ++c)
                    wide.as<double>()[at(r, c)] = x[0][static_cast<std::size_t>(r * s.cols + c)];
                const auto all = op(wide, rows, 0.25, key, std::nullopt).to_doubles();
                std::vector<double> y;
                for (std::int64_t r = 0; r < s.rows; ++r)
                  for (std::int64_t c = 0; c < s.cols; ++c) y.push_back(all[static_cast<std::size_t>(at(r, c))]);
                return y;
              },
          .sizes = {{0, 17}, {1, 1}, {3, 17}, {65, 130}, {4, 1100}},
          .grad_terms = [](Size) { return 1.0; }};
}
TEST(Dropout, WindowCase) { check(window_case("dropout of a window", dropout)); }
TEST(SiluDropout, WindowCase) { check(window_case("silu_dropout of a window", silu_dropout)); }

/// Values, what backward makes of them again, and gradients of a part [rows, n] of x, as bits.
template <class T>
std::vector<std::vector<double>> of_window(const std::vector<T>& x, std::int64_t n, const Rows& rows, bool with_silu,
                                           std::optional<Window> window) {
  Context& context = rows.ids.context();
  const Shape shape{static_cast<std::int64_t>(x.size()) / n, n};
  Tensor in = Tensor::of(context, shape, x), ones = Tensor::full(context, shape, dtype_of<T>, 1);
  make_leaf(in);
  make_leaf(ones);
  const Tensor before = with_silu ? in : silu(in);  // remade, so that dropout is too
  const Tensor y = with_silu ? silu_dropout(before, rows, 0.4, key, window) : dropout(before, rows, 0.4, key, window);
  auto values = y.to_doubles();
  EXPECT_TRUE(is_remade(y));
  backward(mul(y, ones));
  return {values, ones.node()->sink.grad.to_doubles(), in.node()->sink.grad.to_doubles()};
}

template <class T>
void every_window_has_the_bits_of_the_whole() {
  Context context;
  const std::int64_t features = 1100;
  const Rows rows = two_sequences(context, 5);
  std::vector<T> x;
  for (std::int64_t i = 0; i < rows.count() * features; ++i)
    x.push_back(static_cast<T>(test_value(1, static_cast<std::uint64_t>(i), 2)));
  for (const bool with_silu : {false, true}) {
    const auto whole = of_window(x, features, rows, with_silu, std::nullopt);
    const auto cut = [&](const auto& values, const Window& w, std::int64_t count, std::int64_t n) {
      auto part = values;
      part.clear();
      for (std::int64_t r = w.first_row; r < w.first_row + count; ++r) {
        const auto row = values.begin() + r * features + w.first_feature;
        part.insert(part.end(), row, row + n);
      }
      return part;
    };
    for (std::int64_t first = 0; first < 20; ++first)
      for (const std::int64_t n : {std::int64_t{1}, std::int64_t{9}, std::int64_t{40}, std::int64_t{513}, features - first}) {
        const Window window{.first_row = first % 4, .first_feature = first};
        const std::int64_t count = first % 2 + 1;
        const auto part = of_window(cut(x, window, count, n), n, rows, with_silu, window);
        for (std::size_t i = 0; i < whole.size(); ++i)
          ASSERT_EQ(part[i], cut(whole[i], window, count, n)) << (with_silu ? "silu_dropout" : "dropout") << ", result " << i
                                                              << " of " << n << " features from " << first << " on";
      }
  }
}
TEST(Dropout, EveryWindowHasTheBitsOfTheWhole) {
  every_window_has_the_bits_of_the_whole<double>();
  every_window_has_the_bits_of_the_whole<float>();
  every_window_has_the_bits_of_the_whole<bf16>();
}

TEST(Dropout, MaskOfASampleDoesNotDependOnItsBatch) {
  Context context;
  const std::vector<std::int64_t> ids{4, 8, 15}, lengths{5, 9, 2}, one{8}, nine{9};
  const auto together = mask(context, make_rows(context, lengths, ids), 33, 0.5);
  const auto alone = mask(context, make_rows(context, nine, one), 33, 0.5);
  EXPECT_EQ(std::vector(together.begin() + 5 * 33, together.begin() + 14 * 33), alone);
}

TEST(Dropout, RateIsTheProbability) {
  Context context;
  for (const double p : {0.1, 0.5, 0.9}) {
    const auto values = mask(context, two_sequences(context, 1000), 400, p);
    double zeros = 0;
    for (const double v : values) zeros += v == 0;
    const double n = static_cast<double>(values.size());
    EXPECT_LT(std::abs(zeros / n - p), 5 * std::sqrt(p * (1 - p) / n)) << "dropped " << zeros / n << " at p = " << p;
  }
}

TEST(Dropout, StepsAndPathsDrawIndependentMasks) {
  Context context;
  const Rows rows = two_sequences(context, 500);
  const auto base = mask(context, rows, 200, 0.5);
  for (const RandomKey other :
       {random_key(3, 6, "encoder.dropout"), random_key(3, 5, "decoder.dropout"), random_key(4, 5, "encoder.dropout")}) {
    const auto values = mask(context, rows, 200, 0.5, other);
    double equal = 0;
    for (std::size_t i = 0; i < base.size(); ++i) equal += values[i] == base[i];
    const double n = static_cast<double>(base.size());
    EXPECT_LT(std::abs(equal / n - 0.5), 5 * 0.5 / std::sqrt(n)) << "share of equal elements " << equal / n;
  }
}

TEST(Dropout, ProbabilityZeroIsTheInputAndOneAnError) {
  Context context;
  const Rows rows = two_sequences(context, 6);
  const Tensor x = Tensor::full(context, {6, 3}, DType::f32, 1);
  EXPECT_EQ(dropout(x, rows, 0, key).data(), x.data());
  EXPECT_EQ(silu_dropout(x, rows, 0, key).to_doubles(), silu(x).to_doubles());
  EXPECT_THROW(dropout(x, rows, 1, key), Error);
  const Tensor five = Tensor::full(context, {5, 3}, DType::f32, 1);
  EXPECT_THROW(dropout(five, rows, 0.1, key), Error);
  EXPECT_NO_THROW(dropout(five, rows, 0.1, key, Window{.first_row = 1}));
  EXPECT_THROW(dropout(five, rows, 0.1, key, Window{.first_row = 2}), Error);
  EXPECT_THROW(dropout(five, rows, 0.1, key, Window{.first_row = -1}), Error);
  EXPECT_THROW(silu_dropout(five, rows, 0.1, key, Window{.first_feature = -1}), Error);
}

}  // namespace
}  // namespace chorus::testing
