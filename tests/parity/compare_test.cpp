// The comparison itself: a run with one value that isn't right is never taken for equal.
#include <chorus/parallel/parity.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <ostream>

namespace chorus::testing {
namespace {

ParityRun some_run() {
  ParityRun run;
  run.losses = {3.5, 3.25, 3.125};
  run.norms = {0.75, 0.5, 0.625};
  run.initial = {{"a.weight", {0.5, -0.25, 0.125}}, {"b.weight", {1, 2}}};
  run.gradients = {{"a.weight", {1e-3, -2e-3, 4e-3}}, {"b.weight", {0.5, 0}}};
  run.weights = {{"a.weight", {0.4, -0.2, 0.1}}, {"b.weight", {0.9, 2.1}}};
  run.parameters = 5;
  run.norm_of_ones = 5;
  return run;
}

struct Alteration {
  const char* name;
  std::function<void(ParityRun&)> alter;
  const ParityReport::Worst ParityReport::*part = nullptr;  ///< that tells of it; none: a flag does
  const char* where = "";
  friend std::ostream& operator<<(std::ostream& out, const Alteration& alteration) { return out << alteration.name; }
};

const std::vector<Alteration>& alterations() {
  static const std::vector<Alteration> all{
      {"loss", [](ParityRun& r) { r.losses[1] *= 1 + 3e-10; }, &ParityReport::loss,
       "step[1]: serial 3.25, parallel 3.25000000"},
      {"loss_missing", [](ParityRun& r) { r.losses.pop_back(); }, &ParityReport::loss, "step[2]"},
      {"loss_not_a_number", [](ParityRun& r) { r.losses[0] = NAN; }, &ParityReport::loss, "step[0]"},
      {"norm", [](ParityRun& r) { r.norms[2] *= 1 - 3e-10; }, &ParityReport::norm, "step[2]"},
      {"norm_infinite", [](ParityRun& r) { r.norms[2] = INFINITY; }, &ParityReport::norm, "step[2]"},
      // Of the smaller one by the scale of its own tensor.
      {"gradient", [](ParityRun& r) { r.gradients["a.weight"][1] += 8e-13; }, &ParityReport::gradient, "a.weight[1]"},
      {"gradient_of_zero", [](ParityRun& r) { r.gradients["b.weight"][1] = 1e-10; }, &ParityReport::gradient, "b.weight[1]"},
      {"gradient_missing", [](ParityRun& r) { r.gradients.erase("b.weight"); }, &ParityReport::gradient, "b.weight[0]"},
      {"gradient_short", [](ParityRun& r) { r.gradients["a.weight"].resize(2); }, &ParityReport::gradient, "a.weight[2]"},
      {"gradient_not_a_number", [](ParityRun& r) { r.gradients["a.weight"][0] = NAN; }, &ParityReport::gradient, "a.weight[0]"},
      {"weight", [](ParityRun& r) { r.weights["b.weight"][0] -= 4e-10; }, &ParityReport::weight, "b.weight[0]"},
      {"weight_missing", [](ParityRun& r) { r.weights.erase("a.weight"); }, &ParityReport::weight, "a.weight[0]"},
      {"initial",
       [](ParityRun& r) {
         double& value = r.initial["a.weight"][2];
         value = std::nextafter(value, 1);
       }},
      {"initial_missing", [](ParityRun& r) { r.initial.erase("b.weight"); }},
      {"norm_of_ones", [](ParityRun& r) { r.norm_of_ones += 1; }},
      {"parameters", [](ParityRun& r) { r.parameters = 4, r.norm_of_ones = 4; }},
  };
  return all;
}

class Compare : public ::testing::TestWithParam<Alteration> {};
INSTANTIATE_TEST_SUITE_P(Alterations, Compare, ::testing::ValuesIn(alterations()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Compare, NoticesOneAlteredValue) {
  const ParityRun serial = some_run();
  ParityRun parallel = serial;
  GetParam().alter(parallel);
  const ParityReport report = compare(serial, parallel);
  EXPECT_FALSE(report.passed(1e-10));
  if (GetParam().part) {
    EXPECT_GT((report.*GetParam().part).difference, 1e-10);
    EXPECT_THAT((report.*GetParam().part).where, ::testing::StartsWith(GetParam().where));
    EXPECT_TRUE(report.same_start && report.counts_once);
  } else {
    EXPECT_EQ(report.worst(), 0);
    EXPECT_FALSE(report.same_start && report.counts_once);
  }
}

TEST(CompareRuns, ForgivesRoundingOnly) {
  const ParityRun serial = some_run();
  EXPECT_TRUE(compare(serial, serial).passed(0));
  ParityRun parallel = serial;
  for (double& loss : parallel.losses) loss *= 1 + 1e-15;
  parallel.gradients["b.weight"][1] = 1e-17;  // zero but for rounding
  const ParityReport report = compare(serial, parallel);
  EXPECT_TRUE(report.passed(1e-10));
  EXPECT_FALSE(report.passed(1e-17));
}

}  // namespace
}  // namespace chorus::testing
