// How many ranks one process may have.
#include <chorus/apps/layout_check.h>
#include <gmock/gmock.h>

namespace chorus {
namespace {

using ::testing::HasSubstr;

TEST(TooManyRanks, LetsLayoutsBeTriedAndRefusesSlips) {
  for (const auto& [most, cores] : {std::pair{64, 1}, {64, 4}, {80, 5}, {1024, 64}, {4096, 256}}) {
    EXPECT_EQ(too_many_ranks(most, cores), "") << cores;
    EXPECT_THAT(too_many_ranks(most + 1, cores), HasSubstr("at most " + std::to_string(most))) << cores;
  }
  EXPECT_THAT(too_many_ranks(4096, 2), HasSubstr("--ranks 4096: ranks are threads of this process, which may use 2 cores"));
  EXPECT_THAT(too_many_ranks(4096, 1), HasSubstr("1 core;"));
}

}  // namespace
}  // namespace chorus
