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
  EXPECT_THROW(dropout(Tensor::full(context, {5, 3}, DType::f32, 1), rows, 0.1, key), Error);
}

}  // namespace
}  // namespace chorus::testing
