#include <chorus/tensor/ops/rows.h>
#include <gmock/gmock.h>

#include "op_cases/op_case.h"

namespace chorus::testing {
namespace {

/// Ids into a table of `size` rows, some of them often, some never; -1 every fifth if asked for.
std::vector<std::int32_t> make_ids(std::int64_t count, std::int64_t size, bool holes) {
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < count; ++t)
    ids.push_back(holes && t % 5 == 4 ? -1 : static_cast<std::int32_t>((t * t + 3 * t) % size));
  return ids;
}

std::vector<double> gathered(const std::vector<double>& table, const std::vector<std::int32_t>& ids, std::int64_t n) {
  std::vector<double> y;
  for (const auto id : ids)
    for (std::int64_t c = 0; c < n; ++c) y.push_back(id < 0 ? 0 : table[static_cast<std::size_t>(id * n + c)]);
  return y;
}

using RowsOp = std::function<Tensor(const Tensor&, const Tensor&)>;
/// A table of rows / 2 + 1 rows, `rows` ids.
OpCase gather_case(const char* name, bool holes, const RowsOp& op, std::int64_t ids_per_row) {
  const auto ids = [=](Size s) { return make_ids(s.rows * ids_per_row, s.rows / 2 + 1, holes); };
  return {.name = name,
          .shapes =
              [](Size s) {
                return std::vector<Shape>{{s.rows / 2 + 1, s.cols}};
              },
          .op =
              [=](Context& context, const Tensors& x) {
                // The inverse of shapes, for even numbers of rows.
                const auto list = ids({2 * (x[0].size(0) - 1), x[0].size(1)});
                return op(x[0], Tensor::of(context, {static_cast<std::int64_t>(list.size())}, list));
              },
          .reference = [=](const Values& x, Size s) { return gathered(x[0], ids(s), s.cols); },
          .sizes = {{0, 17}, {2, 1}, {4, 17}, {18, 3}, {66, 130}},
          .threads_size = {518, 130}};
}

Tensor of_whole(const Tensor& table, const Tensor& ids) { return embedding(table, ids); }

TEST(Rows, Embedding) { check(gather_case("embedding", false, of_whole, 1)); }
TEST(Rows, EmbeddingOfManyEqualIds) { check(gather_case("embedding", false, of_whole, 7)); }

/// Rows [3, 3 + rows) of a table with four more at the end; ids before, in and behind them.
TEST(Rows, EmbeddingOfAPart) {
  const auto ids = [](std::int64_t rows) { return make_ids(2 * rows + 5, rows + 7, false); };
  check({.name = "embedding of a part",
         .shapes =
             [](Size s) {
               return std::vector<Shape>{{s.rows, s.cols}};
             },
         .op =
             [=](Context& context, const Tensors& x) {
               const auto list = ids(x[0].size(0));
               return embedding(x[0], Tensor::of(context, {static_cast<std::int64_t>(list.size())}, list),
                                {.first = 3, .total = x[0].size(0) + 7});
             },
         .reference =
             [=](const Values& x, Size s) {
               auto list = ids(s.rows);
               for (auto& id : list) id = id >= 3 && id < s.rows + 3 ? id - 3 : -1;
               return gathered(x[0], list, s.cols);
             }});
}

TEST(Rows, PartsOfAnEmbeddingAddUp) {
  Context context;
  const std::int64_t total = 23, n = 5;
  const auto list = make_ids(60, total, false);
  const Tensor ids = Tensor::of(context, {60}, list);
  std::vector<double> values;
  for (std::int64_t i = 0; i < total * n; ++i) values.push_back(test_value(1, static_cast<std::uint64_t>(i), 1));
  Tensor table = Tensor::of(context, {total, n}, values);
  make_leaf(table);
  const Tensor whole = embedding(table, ids), cotangent = Tensor::full(context, {60, n}, DType::f64, 0.75);
  backward(whole, {.cotangent = cotangent});
  for (const std::int64_t parts : {1, 2, 5, 40}) {  // of 40 some are empty
    std::vector<double> sum(static_cast<std::size_t>(60 * n)), gradient;
    for (std::int64_t p = 0; p < parts; ++p) {
      const std::int64_t first = p * total / parts, end = (p + 1) * total / parts;
      Tensor part = table.detach().rows_view(first, end).clone();
      make_leaf(part);
      const Tensor y = embedding(part, ids, {.first = first, .total = total});
      backward(y, {.cotangent = cotangent});
      const auto own = y.to_doubles(), d = part.node()->sink.grad.to_doubles();
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
      gradient.insert(gradient.end(), d.begin(), d.end());
    }
    EXPECT_EQ(sum, whole.to_doubles()) << parts;
    EXPECT_EQ(gradient, table.node()->sink.grad.to_doubles()) << parts;
  }
}
TEST(Rows, GatherRows) { check(gather_case("gather_rows", true, gather_rows, 1)); }

TEST(Rows, ConcatRows) {
  check({.name = "concat_rows",
         .shapes =
             [](Size s) {
               return std::vector<Shape>{{s.rows, s.cols}, {s.rows + 2, s.cols}};
             },
         .op = [](Context&, const Tensors& x) { return concat_rows(x[0], x[1]); },
         .reference =
             [](const Values& x, Size) {
               auto y = x[0];
               y.insert(y.end(), x[1].begin(), x[1].end());
               return y;
             },
         .grad_terms = [](Size) { return 1.0; }});
}

TEST(Rows, ConcatCols) {
  check({.name = "concat_cols",
         .shapes =
             [](Size s) {
               return std::vector<Shape>{{s.rows, s.cols}, {s.rows, 3}};
             },
         .op = [](Context&, const Tensors& x) { return concat_cols(x[0], x[1]); },
         .reference =
             [](const Values& x, Size s) {
               std::vector<double> y;
               for (std::int64_t r = 0; r < s.rows; ++r) {
                 y.insert(y.end(), x[0].begin() + r * s.cols, x[0].begin() + (r + 1) * s.cols);
                 y.insert(y.end(), x[1].begin() + r * 3, x[1].begin() + (r + 1) * 3);
               }
               return y;
             },
         .grad_terms = [](Size) { return 1.0; }});
}

/// Rows before the first and after the last segment, an empty one, one of a single row.
std::vector<std::int32_t> make_offsets(std::int64_t rows) {
  const auto n = static_cast<std::int32_t>(rows);
  return {n / 5, n / 5, n / 2, std::min(n, n / 2 + 1), n - n / 7};
}

TEST(Rows, SegmentMean) {
  check({.name = "segment_mean",
         .shapes =
             [](Size s) {
               return std::vector<Shape>{{s.rows, s.cols}};
             },
         .op = [](Context& context,
                  const Tensors& x) { return segment_mean(x[0], Tensor::of(context, {5}, make_offsets(x[0].size(0)))); },
         .reference =
             [](const Values& x, Size s) {
               const auto offsets = make_offsets(s.rows);
               std::vector<double> y;
               for (std::size_t k = 0; k + 1 < offsets.size(); ++k)
                 for (std::int64_t c = 0; c < s.cols; ++c) {
                   double total = 0;
                   for (std::int64_t r = offsets[k]; r < offsets[k + 1]; ++r)
                     total += x[0][static_cast<std::size_t>(r * s.cols + c)];
                   y.push_back(offsets[k] < offsets[k + 1] ? total / (offsets[k + 1] - offsets[k]) : 0);
                 }
               return y;
             },
         .sizes = {{0, 17}, {1, 1}, {3, 17}, {17, 3}, {65, 130}},
         .terms = [](Size s) { return static_cast<double>(s.rows + 1); },
         .grad_terms = [](Size) { return 1.0; }});
}

TEST(Rows, IdsOutOfRangeAreNamed) {
  Context context;
  const Tensor table = Tensor::zeros(context, {10, 2}, DType::f32);
  const auto message = [&](auto op, std::vector<std::int32_t> ids) -> std::string {
    try {
      op(table, Tensor::of(context, {static_cast<std::int64_t>(ids.size())}, ids));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message(of_whole, {1, 9, 10}), HasSubstr("embedding: id 10 at position 2; the table has 10 rows"));
  EXPECT_THAT(message(of_whole, {-1}), HasSubstr("embedding: id -1 at position 0"));
  const auto of_part = [](std::int64_t first, std::int64_t total) {
    return [=](const Tensor& t, const Tensor& ids) { return embedding(t, ids, {.first = first, .total = total}); };
  };
  EXPECT_EQ(message(of_part(4, 20), {0, 19}), "no error");
  EXPECT_THAT(message(of_part(4, 20), {0, 20}), HasSubstr("embedding: id 20 at position 1; the table has 20 rows"));
  EXPECT_THAT(message(of_part(4, 20), {-1}), HasSubstr("embedding: id -1 at position 0"));
  EXPECT_THAT(message(of_part(11, 20), {0}), HasSubstr("embedding: 10 rows from 11 on of a table with 20"));
  EXPECT_THAT(message(of_part(-1, 20), {0}), HasSubstr("embedding: 10 rows from -1 on"));
  EXPECT_THAT(message(gather_rows, {-1, -2}), HasSubstr("gather_rows: id -2 at position 1"));
  EXPECT_THAT(message(segment_mean, {0, 5, 4}), HasSubstr("segment_mean: offset 4 at position 2"));
  EXPECT_THAT(message(segment_mean, {0, 11}), HasSubstr("segment_mean: offset 11 at position 1"));
}

TEST(Rows, EmbeddingGradientCanBeDeferred) {
  Context context;
  Tensor table = Tensor::full(context, {3, 2}, DType::f32, 1);
  make_leaf(table, Tensor::full(context, {3, 2}, DType::f32, -7));
  DeferredGrads later;
  backward(embedding(table, Tensor::of<std::int32_t>(context, {3}, std::vector<std::int32_t>{2, 0, 2})),
           {.cotangent = {}, .deferred = &later});
  EXPECT_EQ(later.size(), 1u);
  EXPECT_FALSE(table.node()->sink.written);
  later.run();
  EXPECT_THAT(table.node()->sink.grad.to_doubles(), ::testing::ElementsAre(1, 1, 0, 0, 2, 2));
}

}  // namespace
}  // namespace chorus::testing
