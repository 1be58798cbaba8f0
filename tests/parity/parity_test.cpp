// Whatever plans do on a mesh equals one rank.
#include <gtest/gtest.h>

#include "cases.h"

namespace chorus::testing {
namespace {

class Parity : public ::testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Covers, Parity, ::testing::Values(1, 2));

TEST_P(Parity, EveryTwoChoicesMeet) {
  int equal = 0, refused = 0;
  SerialRuns serial;
  for (const Choice& choice : pairwise_cover(GetParam())) {
    const ParityCase c = parity_case(choice);
    const Verdict verdict = judge(c, serial);
    if (verdict.kind == Verdict::equal) ++equal;
    if (verdict.kind == Verdict::refused) ++refused;
    EXPECT_NE(verdict.kind, Verdict::failed) << c.name() << ": " << verdict.text;
    EXPECT_EQ(verdict.kind == Verdict::refused, !c.heads_fit()) << c.name();
    if (verdict.text.find(" waited for ") != verdict.text.npos)
      return;  // a minute for ranks that don't come: others would, too
  }
  EXPECT_GT(equal, 15);
  EXPECT_GT(refused, 0);
  RecordProperty("equal", equal);
}

// What takes three choices to show: two uses of one leaf, sums during backward, more than one rank of data.
TEST(ParityCases, TiedEmbeddingsWaitForBothUses) {
  SerialRuns serial;
  for (const int tp : {1, 2}) {
    for (const std::int64_t bucket_size : {700, 100'000}) {
      ParityCase c;
      c.variant.tied = true;
      c.dp = 2;
      c.tp = tp;
      c.ddp.bucket_size = bucket_size;
      const Verdict verdict = judge(c, serial);
      EXPECT_EQ(verdict.kind, Verdict::equal) << c.name() << ": " << verdict.text;
    }
  }
}

// Every kind of layer, with dropout and with gradients summed while backward runs and repeats.
TEST(ParityCases, RecomputationKeepsBits) {
  SerialRuns serial;
  for (const std::string model : {"decoder", "perception", "salm", "ctc"}) {
    for (const bool rotary : {false, true}) {
      if (model == "decoder" && rotary) continue;
      for (const Recompute mode : {Recompute::full, Recompute::selective}) {
        ParityCase c;
        c.variant.model = model;
        c.variant.rotary = rotary;
        c.variant.batch_norm = rotary == (model == "salm");  // both norms with both kinds of attention
        c.variant.sequence_parallel = true;
        c.dp = c.tp = c.accumulation = 2;
        c.ddp.bucket_size = 700;
        c.recompute = mode;
        const Verdict verdict = judge(c, serial);
        EXPECT_EQ(verdict.kind, Verdict::equal) << c.name() << ": " << verdict.text;
      }
    }
  }
}

// Each key/value head on several neighbours, which share its query heads: most ranks of a group hold the same one.
TEST(ParityCases, FewKeyValueHeadsOnManyRanks) {
  struct Heads {
    int kv, tp;
  };
  for (const auto& [kv, tp] : {Heads{2, 4}, Heads{2, 8}, Heads{1, 8}}) {
    SerialRuns serial;
    for (const bool sequence_parallel : {false, true}) {
      ParityCase c;
      c.variant.heads = 8;
      c.variant.kv_heads = kv;
      c.variant.sequence_parallel = sequence_parallel;
      c.tp = tp;
      c.ddp.overlap_grad_reduce = false;  // gradients' sums are no matter here
      const Verdict verdict = judge(c, serial);
      EXPECT_EQ(verdict.kind, Verdict::equal) << c.name() << ": " << verdict.text;
    }
  }
}

}  // namespace
}  // namespace chorus::testing
