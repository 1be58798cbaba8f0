#include <chorus/core/text.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(EditDistance, Textbook) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2u);
  EXPECT_EQ(edit_distance("same", "same"), 0u);
}

TEST(EditDistance, CountsWords) {
  const std::vector<std::string> a{"the", "cat", "sat"}, b{"a", "cat", "sat", "down"};
  EXPECT_EQ(edit_distance(std::span<const std::string>(a), std::span<const std::string>(b)), 2u);
}

TEST(Human, Bytes) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(2.0 * (1 << 30)), "2.00 GiB");
}

TEST(Human, Numbers) {
  EXPECT_EQ(human_number(950), "950");
  EXPECT_EQ(human_number(0.25), "0.25");
  EXPECT_EQ(human_number(1234), "1.23 k");
  EXPECT_EQ(human_number(7e9), "7.00 G");
  EXPECT_EQ(human_number(999'999.9), "1.00 M");
}

}  // namespace
}  // namespace chorus
