#include <chorus/tensor/kernels/rope.h>
#include <chorus/tensor/ops/rope.h>
#include <gmock/gmock.h>

#include <cmath>

#include "op_cases/op_case.h"

namespace chorus::testing {
namespace {

constexpr double base = 10000;

/// Positions with repeats, gaps and values beyond one block of 64.
std::int32_t position(std::int64_t row) { return static_cast<std::int32_t>(row * row % 131); }

Rows rows_of(Context& context, std::int64_t count) {
  const std::vector<std::int64_t> lengths{count}, ids{0};
  Rows rows = make_rows(context, lengths, ids);
  for (std::int64_t r = 0; r < count; ++r) rows.positions.as<std::int32_t>()[r] = position(r);
  return rows;
}

/// Heads of 2 * cols, of which `rotated` of three are rotated.
OpCase rope_case(int rotated) {
  return {.name = "rope",
          .shapes =
              [](Size s) {
                return std::vector<Shape>{{s.rows, 6 * s.cols}};
              },
          .op =
              [=](Context& context, const Tensors& x) {
                return rope(x[0], rows_of(context, x[0].size(0)), rotated, static_cast<int>(x[0].size(1) / 3), base);
              },
          .reference =
              [=](const Values& x, Size s) {
                auto y = x[0];
                const std::int64_t half = s.cols;
                for (std::int64_t r = 0; r < s.rows; ++r)
                  for (int h = 0; h < rotated; ++h)
                    for (std::int64_t i = 0; i < half; ++i) {
                      const auto a = static_cast<std::size_t>((r * 3 + h) * 2 * half + i),
                                 b = a + static_cast<std::size_t>(half);
                      const double angle = position(r) * std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
                      y[a] = x[0][a] * std::cos(angle) - x[0][b] * std::sin(angle);
                      y[b] = x[0][a] * std::sin(angle) + x[0][b] * std::cos(angle);
                    }
                return y;
              },
          .sizes = {{0, 3}, {1, 1}, {3, 17}, {140, 32}},
          .threads_size = {200, 32},
          .grad_terms = [](Size) { return 2.0; }};
}

TEST(Rope, SomeHeads) { check(rope_case(2)); }
TEST(Rope, AllHeads) { check(rope_case(3)); }

TEST(Rope, ScoresDependOnDistanceAlone) {
  Context context;
  Rows rows = rows_of(context, 4);
  const std::vector<std::int32_t> positions{5, 2, 1003, 1000};
  std::copy(positions.begin(), positions.end(), rows.positions.as<std::int32_t>());
  std::vector<double> values;
  for (int pair = 0; pair < 2; ++pair)
    for (std::uint64_t i = 0; i < 32; ++i) values.push_back(test_value(1, i, 1));
  const auto y = rope(Tensor::of(context, {4, 16}, values), rows, 1, 16, base).to_doubles();
  const auto score = [&](std::size_t q, std::size_t k) {
    double total = 0;
    for (std::size_t i = 0; i < 16; ++i) total += y[q * 16 + i] * y[k * 16 + i];
    return total;
  };
  EXPECT_NEAR(score(0, 1), score(2, 3), 1e-12);
}

TEST(Rope, ErrorsNameWhatIsWrong) {
  Context context;
  Rows rows = rows_of(context, 2);
  EXPECT_THROW(rope(Tensor::zeros(context, {2, 12}, DType::f32), rows, 1, 3, base), Error);
  EXPECT_THROW(rope(Tensor::zeros(context, {2, 12}, DType::f32), rows, 4, 4, base), Error);
  EXPECT_THROW(rope(Tensor::zeros(context, {3, 12}, DType::f32), rows, 1, 4, base), Error);
  rows.positions.as<std::int32_t>()[1] = -3;
  try {
    rope(Tensor::zeros(context, {2, 12}, DType::f32), rows, 1, 4, base);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("position -3 of row 1"));
  }
}

TEST(Rope, LayersOfABatchShareATable) {
  Context context;
  const std::vector<std::int64_t> lengths{5, 3}, ids{0, 1};
  Rows rows = make_rows(context, lengths, ids);
  const Tensor x = Tensor::full(context, {8, 8}, DType::f64, 1.0);
  const auto first = rope(x, rows, 2, 4, base).to_doubles();
  const Rows copy = rows;
  EXPECT_EQ(rope(x, copy, 2, 4, base).to_doubles(), first);
  EXPECT_EQ(rows.rope_tables->entries.size(), 1u);
  const auto other_base = rope(x, rows, 2, 4, 100).to_doubles();
  EXPECT_NE(other_base, first);
  rope(x, rows, 1, 8, base);
  EXPECT_EQ(rows.rope_tables->entries.size(), 3u);
  rows.positions = Tensor::of(context, {8}, std::vector<std::int32_t>{7, 6, 5, 4, 3, 2, 1, 0});
  EXPECT_NE(rope(x, rows, 2, 4, base).to_doubles(), first) << "other positions";
  EXPECT_EQ(rows.rope_tables->entries.size(), 4u);
}

}  // namespace
}  // namespace chorus::testing
