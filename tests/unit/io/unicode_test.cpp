#include <chorus/core/error.h>
#include <chorus/io/unicode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chorus {
namespace {

TEST(Unicode, BrokenUtf8IsFound) {
  EXPECT_EQ(first_bad_utf8(""), std::string::npos);
  EXPECT_EQ(first_bad_utf8("grüezi Ёж 𝄞"), std::string::npos);
  EXPECT_EQ(first_bad_utf8("ab\xff"), 2u);
  EXPECT_EQ(first_bad_utf8("caf\xe9 au lait"), 3u) << "Latin-1";
  EXPECT_EQ(first_bad_utf8("x\xc3"), 1u) << "cut in the middle of a letter";
  EXPECT_EQ(first_bad_utf8("\xc0\xaf"), 0u) << "overlong";
  EXPECT_EQ(first_bad_utf8("\xed\xa0\x80"), 0u) << "a surrogate";
  EXPECT_THAT([] { code_points("ab\xff"); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("byte 2 (255) of 3 is not UTF-8")));
}

TEST(Unicode, CodePointsAndBack) {
  EXPECT_EQ(code_points("aé中𝄞"), U"aé中𝄞");
  EXPECT_EQ(to_utf8(U"aé中𝄞"), "aé中𝄞");
  EXPECT_EQ(composed("e\u0301 И\u0306"), "é Й");
}

TEST(Unicode, PlainWords) {
  EXPECT_EQ(plain_words("  ÀÉ, Ñu -- ЁЖ\t42!  Don\u2019t "), "àé ñu ёж 42 don't");
  EXPECT_EQ(plain_words("...«»"), "");
  EXPECT_EQ(plain_words("E\u0301TE\u0301"), plain_words("été"));
}

TEST(Unicode, OddCharacters) {
  for (const char32_t c : {U'\u200b', U'\ufeff', U'\x07', U'\ufffd', U'\ue000', U'\t', U'\U000effff'})
    EXPECT_TRUE(is_odd(c)) << static_cast<unsigned>(c);
  for (const char32_t c : {U'a', U'é', U'я', U'中', U' ', U'\u00a0', U'7', U'?', U'\u0301'})
    EXPECT_FALSE(is_odd(c)) << static_cast<unsigned>(c);
}

}  // namespace
}  // namespace chorus
