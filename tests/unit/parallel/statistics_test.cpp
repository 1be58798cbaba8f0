// What ranks tell each other about a step beside gradients.
#include <chorus/nn/materialize.h>
#include <chorus/parallel/group/threads.h>
#include <chorus/parallel/statistics.h>
#include <gtest/gtest.h>

#include <cmath>

namespace chorus {
namespace {

constexpr Pass training{.training = true};

/// Rows of three features, other ones in every step.
Tensor some_rows(Context& context, int first, int end, int step) {
  std::vector<double> values;
  for (int t = first; t < end; ++t)
    for (int c = 0; c < 3; ++c) values.push_back(std::sin(1.7 * t + c * c + 0.3 * step) * (c + 1) + c);
  return Tensor::of(context, {end - first, 3}, values);
}

struct Normed {
  Context context;
  BatchNorm norm{3, BatchNorm::Mode::step};
  ParamStore store = materialize(norm, context, {.dtype = DType::f64, .seed = 1, .freeze = {}});
  std::vector<double> buffers() const {
    std::vector<double> all;
    for (const Buffer* buffer : {&norm.mean, &norm.variance, &norm.step_mean, &norm.step_variance})
      for (const double x : buffer->value.to_doubles()) all.push_back(x);
    return all;
  }
};

TEST(ShareStatistics, EqualThoseOfOneRankWithAllRowsWhoeverHasThem) {
  constexpr int ends[] = {0, 7, 7, 20};  // the second rank has none
  Normed serial;
  std::vector<std::vector<double>> ranks(3);
  run_ranks(3, {}, [&](Group& world) {
    Normed own;
    share_statistics(own.norm.statistics, world);
    const auto r = static_cast<std::size_t>(world.rank());
    for (int step = 0; step < 3; ++step) {
      own.norm(some_rows(own.context, ends[r], ends[r + 1], step), training);
      commit_statistics(own.norm);
    }
    ranks[r] = own.buffers();
  });
  for (int step = 0; step < 3; ++step) {
    serial.norm(some_rows(serial.context, 0, 20, step), training);
    commit_statistics(serial.norm);
  }
  const auto want = serial.buffers();
  EXPECT_EQ(ranks[0], ranks[1]);
  EXPECT_EQ(ranks[0], ranks[2]);
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(ranks[0][i], want[i], 1e-12);
}

TEST(ShareStatistics, ADiscardedStepLeavesNoTrace) {
  Normed with, without;
  for (Normed* one : {&with, &without}) {
    one->norm(some_rows(one->context, 0, 9, 0), training);
    commit_statistics(one->norm);
    if (one == &with) {
      one->norm(some_rows(one->context, 4, 30, 1), training);
      discard_statistics(one->norm);
    }
    one->norm(some_rows(one->context, 0, 5, 2), training);
    commit_statistics(one->norm);
  }
  EXPECT_EQ(with.buffers(), without.buffers());
}

}  // namespace
}  // namespace chorus
