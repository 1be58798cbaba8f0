// The fused loss of parts of the vocabulary against that of the whole.
#include <chorus/tensor/ops/linear_cross_entropy.h>
#include <gmock/gmock.h>

#include <cmath>

#include "op_cases/op_case.h"

namespace chorus::testing {
namespace {

constexpr double part_scale = 0.25;
constexpr RowStatistics elsewhere{.max = 0.5, .exps = 3.25, .sum = -2.5, .chosen = 0};

/// Every third row ignored; labels before, among and behind the classes [first, first + here).
std::vector<std::int32_t> spread_labels(std::int64_t rows, std::int64_t classes) {
  std::vector<std::int32_t> labels;
  for (std::int64_t t = 0; t < rows; ++t)
    labels.push_back(t % 3 == 1 ? ignored_label : static_cast<std::int32_t>((7 * t + 2) % classes));
  return labels;
}

/// One part, beside fixed logits of the others (sum of exponentials, sum, and for labels elsewhere a logit of -0.25). Then the
/// loss depends on x through the classes here alone, and its derivative is this part's share.
OpCase one_part(std::int64_t first, std::int64_t here, std::int64_t classes, double smoothing) {
  return {.name = std::to_string(here) + " of " + std::to_string(classes) + " classes, smoothing " + std::to_string(smoothing),
          .shapes =
              [=](Size s) {
                return std::vector<Shape>{{s.rows, s.cols}, {here, s.cols}};
              },
          .op =
              [=](Context& context, const Tensors& x) {
                const auto labels = spread_labels(x[0].size(0), classes);
                std::vector<std::int32_t> labelled = labels;
                std::erase(labelled, ignored_label);
                std::size_t next = 0;
                const auto combine = [&](std::span<RowStatistics> rows) {
                  for (auto& row : rows) {
                    RowStatistics other = elsewhere;
                    const std::int64_t label = labelled.at(next++);
                    if (label < first || label >= first + here) other.chosen = -0.25;
                    row = merge(other, row);
                  }
                };
                return linear_cross_entropy(x[0], x[1], Tensor::of(context, {x[0].size(0)}, labels),
                                            {part_scale, smoothing, {first, classes}, combine});
              },
          .reference =
              [=](const Values& x, Size s) {
                double total = 0;
                const auto labels = spread_labels(s.rows, classes);
                for (std::int64_t t = 0; t < s.rows; ++t) {
                  const std::int64_t label = labels[static_cast<std::size_t>(t)];
                  if (label == ignored_label) continue;
                  double exps = elsewhere.exps * std::exp(elsewhere.max), sum = elsewhere.sum, chosen = -0.25;
                  for (std::int64_t v = 0; v < here; ++v) {
                    double logit = 0;
                    for (std::int64_t c = 0; c < s.cols; ++c)
                      logit += x[0][static_cast<std::size_t>(t * s.cols + c)] * x[1][static_cast<std::size_t>(v * s.cols + c)];
                    exps += std::exp(logit);
                    sum += logit;
                    if (v + first == label) chosen = logit;
                  }
                  const double mean = sum / static_cast<double>(classes);
                  total += std::log(exps) - (1 - smoothing) * chosen - smoothing * mean;
                }
                return std::vector<double>{part_scale * total};
              },
          .terms = [](Size s) { return static_cast<double>(s.cols * std::max<std::int64_t>(s.rows, 1)); },
          .grad_terms =
              [=](Size s) {
                return static_cast<double>(std::max({s.rows, s.cols, here}));
              }};
}

TEST(LinearCrossEntropyPart, BesideFixedOthers) {
  check(one_part(7, 11, 23, 0));
  check(one_part(7, 11, 23, 0.1));
}
TEST(LinearCrossEntropyPart, ManyClasses) {
  auto op_case = one_part(300, 530, 1030, 0.1);
  op_case.sizes = {{5, 8}};
  check(op_case);
}

struct PartLoss {
  std::vector<double> loss, dx, dweight;
  std::size_t blocks = 0;
};
constexpr std::int64_t part_width = 6;

/// Loss and gradients, of classes [first, end) alone if `options` say so.
PartLoss loss_of(const std::vector<std::int32_t>& labels, std::int64_t first, std::int64_t end, DType dtype,
                 CrossEntropyOptions options, bool recording = true) {
  Context context;
  const auto tensor = [&](const Shape& shape, std::uint64_t stream, std::int64_t skipped) {
    Tensor t = Tensor::empty(context, shape, dtype);
    dispatch_floating(dtype, "tensor", [&]<class T>() {
      for (std::int64_t i = 0; i < t.numel(); ++i)
        t.as<T>()[i] = static_cast<T>(test_value(stream, static_cast<std::uint64_t>(skipped + i), 2));
    });
    make_leaf(t);
    return t;
  };
  const auto rows = static_cast<std::int64_t>(labels.size());
  const Tensor x = tensor({rows, part_width}, 1, 0), weight = tensor({end - first, part_width}, 2, first * part_width);
  context.recording = recording;
  PartLoss result;
  if (options.combine)
    options.combine = [&result, combine = options.combine](std::span<RowStatistics> block) {
      ++result.blocks;
      combine(block);
    };
  const Tensor loss = linear_cross_entropy(x, weight, Tensor::of(context, {rows}, labels), options);
  result.loss = loss.to_doubles();
  if (!recording) return result;
  backward(loss, {.cotangent = Tensor::full(context, {}, loss.dtype(), 3)});
  result.dx = x.node()->sink.grad.to_doubles();
  result.dweight = weight.node()->sink.grad.to_doubles();
  return result;
}

/// All parts in lock step: a first pass tells what each has found, a second one gives every part the whole.
std::vector<PartLoss> losses_of_parts(const std::vector<std::int32_t>& labels, const std::vector<std::int64_t>& borders,
                                      DType dtype, double smoothing) {
  const std::int64_t classes = borders.back();
  const std::size_t parts = borders.size() - 1;
  std::vector<std::vector<RowStatistics>> blocks;
  for (std::size_t p = 0; p < parts; ++p) {
    std::size_t block = 0;
    const auto collect = [&](std::span<RowStatistics> rows) {
      if (p == 0) blocks.emplace_back(rows.size());
      auto& all = blocks.at(block++);
      EXPECT_EQ(all.size(), rows.size());
      for (std::size_t r = 0; r < rows.size(); ++r) all.at(r) = merge(all.at(r), rows[r]);
    };
    loss_of(labels, borders[p], borders[p + 1], dtype, {part_scale, smoothing, {borders[p], classes}, collect}, false);
    EXPECT_EQ(block, blocks.size()) << "calls by part " << p;
  }
  std::vector<PartLoss> results;
  for (std::size_t p = 0; p < parts; ++p) {
    std::size_t block = 0;
    const auto give = [&](std::span<RowStatistics> rows) {
      std::copy(blocks.at(block).begin(), blocks.at(block).end(), rows.begin());
      ++block;
    };
    results.push_back(loss_of(labels, borders[p], borders[p + 1], dtype, {part_scale, smoothing, {borders[p], classes}, give}));
    EXPECT_EQ(results.back().blocks, blocks.size());
  }
  return results;
}

void parts_equal_the_whole(const std::vector<std::int32_t>& labels, const std::vector<std::int64_t>& borders, DType dtype,
                           double smoothing, const char* what) {
  const PartLoss whole = loss_of(labels, 0, borders.back(), DType::f64, {part_scale, smoothing});
  const auto parts = losses_of_parts(labels, borders, dtype, smoothing);
  std::vector<double> dx(whole.dx.size()), dweight;
  for (const PartLoss& part : parts) {
    EXPECT_EQ(part.loss, parts.front().loss) << what;
    for (std::size_t i = 0; i < dx.size(); ++i) dx[i] += part.dx[i];
    dweight.insert(dweight.end(), part.dweight.begin(), part.dweight.end());
  }
  const std::string name = std::string(what) + ", " + std::to_string(parts.size()) + " parts, smoothing " +
                           std::to_string(smoothing) + ", " + std::string(chorus::name(dtype));
  // As in an op case: a loss is a sum over rows of sums over the part_width, dweight one over rows; each part's dx is rounded.
  const double eps = dtype == DType::f64   ? 0
                     : dtype == DType::f32 ? 0x1p-24
                                           : 0x1p-8,
               rows = static_cast<double>(labels.size());
  const auto tolerance = [&](double terms) { return dtype == DType::f64 ? 1e-13 : 4 * eps * std::sqrt(terms); };
  expect_close(name + ": loss", parts.front().loss, whole.loss, tolerance(part_width * std::max(rows, 1.0)));
  expect_close(name + ": dx", dx, whole.dx, tolerance(static_cast<double>(std::max<std::int64_t>(borders.back(), part_width))));
  expect_close(name + ": dweight", dweight, whole.dweight, tolerance(std::max(rows, 6.0)));
}

TEST(LinearCrossEntropyPart, PartsEqualTheWhole) {
  const std::vector<std::vector<std::int64_t>> borders{{0, 23},
                                                       {0, 11, 23},
                                                       {0, 7, 7, 23},
                                                       {0, 5, 11, 17, 23},
                                                       {0, 4, 9, 13, 18, 23},
                                                       {0, 0, 1, 1, 2, 3, 3}};  // more parts than classes
  for (const auto& cut : borders)
    for (const double smoothing : {0.0, 0.1})
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
        const auto some = spread_labels(1700, cut.back());  // in two blocks of rows
        parts_equal_the_whole(some, cut, dtype, smoothing, "some rows");
        parts_equal_the_whole(std::vector<std::int32_t>(9, ignored_label), cut, dtype, smoothing, "no labelled row");
        parts_equal_the_whole({}, cut, dtype, smoothing, "no row");
      }
}

TEST(LinearCrossEntropyPart, BlocksFollowTheWholeVocabulary) {
  const auto calls = [](std::int64_t here, std::int64_t classes) {
    const std::vector<std::int32_t> labels(1100, 0);
    const auto none = [](std::span<RowStatistics> rows) {
      for (auto& row : rows) row = merge(row, elsewhere);
    };
    return loss_of(labels, 0, here, DType::f32, {1, 0, {0, classes}, none}, false).blocks;
  };
  EXPECT_EQ(calls(3, 3), 2u);
  EXPECT_EQ(calls(3, 1 << 17), 5u);  // of 256 rows
  EXPECT_EQ(calls(0, 1 << 17), 5u);
}

TEST(RowStatistics, MergeKeepsWhatEitherHas) {
  const RowStatistics a{.max = 2, .exps = 1.5, .sum = 3, .chosen = 0}, none;
  const auto same = [](const RowStatistics& s, const RowStatistics& t) {
    return s.max == t.max && s.exps == t.exps && s.sum == t.sum && s.chosen == t.chosen;
  };
  EXPECT_TRUE(same(merge(a, none), a));
  EXPECT_TRUE(same(merge(none, a), a));
  EXPECT_TRUE(same(merge(none, none), none));
  const RowStatistics b{.max = 5, .exps = 2, .sum = -1, .chosen = 4}, both = merge(a, b);
  EXPECT_EQ(both.max, 5);
  EXPECT_DOUBLE_EQ(both.exps, 2 + 1.5 * std::exp(-3));
  EXPECT_EQ(both.sum, 2);
  EXPECT_EQ(both.chosen, 4);
  // Far logits neither vanish into NaN nor overflow; a NaN stays one.
  const RowStatistics far{.max = 1e4, .exps = 1, .sum = 1e4, .chosen = 1e4};
  EXPECT_TRUE(same(merge(far, {.max = -1e4, .exps = 1, .sum = 0, .chosen = 0}), far));
  EXPECT_TRUE(std::isnan(merge({.max = 1, .exps = NAN, .sum = 0, .chosen = 0}, far).exps));
  EXPECT_TRUE(std::isnan(merge(far, {.max = NAN, .exps = NAN, .sum = NAN, .chosen = 0}).exps));
}

TEST(LinearCrossEntropyPart, LargeLogitsStayFinite) {
  Context context;
  const Tensor x = Tensor::full(context, {1, 1}, DType::f32, 1e4),
               label = Tensor::of(context, {1}, std::vector<std::int32_t>{1});
  const auto others = [](double logit) {
    return
        [=](std::span<RowStatistics> rows) { rows[0] = merge(rows[0], {.max = logit, .exps = 1, .sum = logit, .chosen = 0}); };
  };
  const Tensor weight = Tensor::full(context, {1, 1}, DType::f32, 1);  // class 1 of two
  EXPECT_EQ(linear_cross_entropy(x, weight, label, {1, 0, {1, 2}, others(-1e4)}).item(), 0);
  EXPECT_EQ(linear_cross_entropy(x, weight, label, {1, 0, {1, 2}, others(3e4)}).item(), 2e4);
}

TEST(LinearCrossEntropyPart, ErrorsNameTheValues) {
  using ::testing::HasSubstr;
  const auto keep = [](std::span<RowStatistics>) {};
  const auto message = [&](const std::vector<std::int32_t>& labels, const CrossEntropyOptions& options) -> std::string {
    try {
      loss_of(labels, 4, 9, DType::f32, options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message({0, 22, 5}, {1, 0, {4, 23}, keep}), "no error");
  EXPECT_THAT(message({0, 23}, {1, 0, {4, 23}, keep}), HasSubstr("label 23 of row 1 is not in [0, 23)"));
  EXPECT_THAT(message({0, -1}, {1, 0, {4, 23}, keep}), HasSubstr("label -1 of row 1"));
  EXPECT_THAT(message({0}, {1, 0, {19, 23}, keep}), HasSubstr("5 rows from 19 on of a table with 23"));
  EXPECT_THAT(message({0}, {1, 0, {4, 23}, {}}), HasSubstr("5 classes of 23 without a hook"));
  EXPECT_THAT(message({0}, {1, 0, {}, keep}), HasSubstr("5 classes of 0 with a hook"));
}

}  // namespace
}  // namespace chorus::testing
