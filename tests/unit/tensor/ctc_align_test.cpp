// The best path through a CTC head against a search of all paths.
#include <chorus/core/rng.h>
#include <chorus/tensor/ops/ctc.h>
#include <chorus/tensor/ops/ctc_align.h>
#include <gmock/gmock.h>

#include <cmath>

namespace chorus {
namespace {

constexpr int symbols = 4, blank = 3;

std::vector<std::int32_t> collapse(const std::vector<int>& path) {
  std::vector<std::int32_t> out;
  for (std::size_t i = 0; i < path.size(); ++i)
    if (path[i] != blank && (i == 0 || path[i] != path[i - 1])) out.push_back(path[i]);
  return out;
}

/// Spans of the labels on a path that spells them.
std::vector<CtcSpan> spans_of(const std::vector<int>& path) {
  std::vector<CtcSpan> out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path[i] == blank) continue;
    const auto at = static_cast<std::int64_t>(i);
    if (i == 0 || path[i] != path[i - 1])
      out.push_back({at, at});
    else
      out.back().last = at;
  }
  return out;
}

TEST(CtcAlign, IsTheBestOfAllPaths) {
  Context context;
  for (const DType dtype : {DType::f64, DType::f32}) {
    for (const std::int64_t frames : {1, 2, 5, 7}) {
      // Two sequences, so that borders matter.
      const std::vector<std::int64_t> lengths{frames, 6}, ids{0, 1};
      const Rows rows = make_rows(context, lengths, ids);
      std::vector<double> values(static_cast<std::size_t>((frames + 6) * symbols));
      fill_normal(random_key(static_cast<std::uint64_t>(frames), "logits"), 0, std::span<double>(values), 0, 2);
      const Tensor wide = Tensor::of(context, {frames + 6, symbols}, values);
      Tensor logits = wide;
      if (dtype == DType::f32) {
        logits = Tensor::empty(context, wide.shape(), DType::f32);
        std::transform(values.begin(), values.end(), logits.as<float>(), [](double x) { return static_cast<float>(x); });
        values = logits.to_doubles();
      }
      for (const auto& labels : std::vector<std::vector<std::int32_t>>{{0}, {1, 2}, {1, 1}, {0, 1, 0}, {2, 2, 2}}) {
        double best = -INFINITY;
        std::vector<CtcSpan> expected;
        std::vector<int> path(static_cast<std::size_t>(frames));
        const auto paths = static_cast<int>(std::pow(symbols, frames));
        for (int n = 0; n < paths; ++n) {
          double score = 0;
          for (std::size_t t = 0, rest = static_cast<std::size_t>(n); t < path.size(); ++t, rest /= symbols) {
            path[t] = static_cast<int>(rest % symbols);
            score += values[t * symbols + static_cast<std::size_t>(path[t])];
          }
          if (score <= best || collapse(path) != labels) continue;
          best = score;
          expected = spans_of(path);
        }
        const auto found = ctc_align(logits, rows, {labels, {0}});
        ASSERT_EQ(found.size(), 2u);
        EXPECT_EQ(found[0].size(), expected.size()) << frames << " frames, " << labels.size() << " labels";
        EXPECT_TRUE(found[0] == expected) << frames << " frames, " << labels.size() << " labels";
        EXPECT_EQ(found[1].size(), 1u);
      }
    }
  }
}

TEST(CtcAlign, GreedyTextLiesWhereItWasRead) {
  Context context;
  const std::vector<std::int64_t> lengths{8}, ids{0};
  const Rows rows = make_rows(context, lengths, ids);
  const std::vector<int> path{blank, 0, 0, blank, 0, 1, 1, blank};
  std::vector<double> values(8 * symbols);
  for (std::size_t t = 0; t < 8; ++t) values[t * symbols + static_cast<std::size_t>(path[t])] = 5;
  const Tensor logits = Tensor::of(context, {8, symbols}, values);
  const auto spans = ctc_align(logits, rows, ctc_greedy(logits, rows));
  EXPECT_THAT(spans[0], ::testing::ElementsAre(CtcSpan{1, 2}, CtcSpan{4, 4}, CtcSpan{5, 6}));
}

TEST(CtcAlign, WhatIsImpossibleHasNoRowsAndWhatIsWrongThrows) {
  Context context;
  const std::vector<std::int64_t> lengths{2, 0}, ids{0, 1};
  const Rows rows = make_rows(context, lengths, ids);
  const Tensor logits = Tensor::of(context, {2, symbols}, std::vector<double>(8));
  EXPECT_TRUE(ctc_align(logits, rows, {{1, 1}, {}})[0].empty()) << "needs a blank between: three rows";
  EXPECT_TRUE(ctc_align(logits, rows, {{}, {1}})[1].empty());
  const Tensor never = Tensor::of(context, {2, symbols}, std::vector<double>{0, -INFINITY, 0, 0, 0, -INFINITY, 0, 0});
  EXPECT_TRUE(ctc_align(never, rows, {{1}, {}})[0].empty());
  EXPECT_THROW(ctc_align(logits, rows, {{blank}, {}}), Error);
  EXPECT_THROW(ctc_align(logits, rows, {{1}}), Error);
}

}  // namespace
}  // namespace chorus
