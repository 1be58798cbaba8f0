// Whatever plans do on a mesh equals one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cases.h"

namespace chorus::testing {
namespace {

TEST(Parity, EveryTwoChoicesMeet) {
  int equal = 0, refused = 0;
  for (const Choice& choice : pairwise_cover(1)) {
    const ParityCase c = parity_case(choice);
    const Verdict verdict = judge(c);
    if (verdict.kind == Verdict::equal) ++equal;
    if (verdict.kind == Verdict::refused) ++refused;
    const bool too_few_heads = c.variant.model != "ctc" && c.tp == 3 && c.variant.kv_heads > 1;
    EXPECT_EQ(verdict.kind, too_few_heads ? Verdict::refused : Verdict::equal) << c.name() << ": " << verdict.text;
    if (too_few_heads) {
      EXPECT_THAT(verdict.text, ::testing::HasSubstr("num_key_value_heads " + std::to_string(c.variant.kv_heads) +
                                                     " don't divide over tp_size 3, nor the other way round"));
    }
  }
  EXPECT_GT(equal, 15);
  EXPECT_GT(refused, 0);
  RecordProperty("equal", equal);
}

}  // namespace
}  // namespace chorus::testing
