#include <chorus/apps/report/diff.h>
#include <chorus/apps/report/html.h>
#include <gtest/gtest.h>

#include <random>

namespace chorus::report {
namespace {

/// "=same -missing +added"
std::string shown(std::string_view reference, std::string_view transcript) {
  std::string out;
  for (const auto& piece : difference(reference, transcript)) {
    out += piece.edit == Edit::equal ? '=' : piece.edit == Edit::missing ? '-' : '+';
    out += piece.text + '|';
  }
  return out;
}

std::string side(std::string_view reference, std::string_view transcript, Edit without) {
  std::string out;
  for (const auto& piece : difference(reference, transcript))
    if (piece.edit != without) out += piece.text;
  return out;
}

TEST(Difference, MarksWordsAndLetters) {
  EXPECT_EQ(shown("press one now", "press one now"), "=press one now|");
  EXPECT_EQ(shown("press one now", "press now"), "=press|- one|= now|");
  EXPECT_EQ(shown("press now", "press one now"), "=press|+ one|= now|");
  EXPECT_EQ(shown("the conference", "the confrence"), "=the conf|-e|=rence|");
  EXPECT_EQ(shown("good bye", "good night"), "=good |-bye|+night|");  // nothing in common: not letter by letter
  EXPECT_EQ(shown("für drei", "fur drei"), "=f|-ü|+u|=r drei|");      // a character, not its bytes
  EXPECT_EQ(shown("", "noise"), "+noise|");
  EXPECT_EQ(shown("silence", ""), "-silence|");
  EXPECT_EQ(shown("", ""), "");
}

TEST(Difference, PairsWordsThatAreAlike) {
  // Two wrong words in any case: the one that is nearly right is matched with its own.
  EXPECT_EQ(shown("please enter", "plese"), "=ple|-a|=se|- enter|");
  EXPECT_EQ(shown("press enter", "entr"), "-press |=ent|-e|=r|");
}

TEST(Difference, SpellsBothSides) {
  std::mt19937 random(7);
  const std::vector<std::string> vocabulary{"a", "ab", "abc", "conference", "confrence", "is", "now", "grün"};
  const auto sentence = [&] {
    std::string out;
    for (auto n = random() % 8; n > 0; --n) out += (out.empty() ? "" : " ") + vocabulary[random() % vocabulary.size()];
    return out;
  };
  for (int i = 0; i < 500; ++i) {
    const std::string a = sentence(), b = sentence();
    EXPECT_EQ(side(a, b, Edit::added), a) << a << " / " << b;
    EXPECT_EQ(side(a, b, Edit::missing), b) << a << " / " << b;
  }
}

TEST(Difference, LongTextsAreShownWhole) {
  std::string a, b;
  for (int i = 0; i < 3000; ++i) {
    a += "word ";
    b += "other ";
  }
  EXPECT_EQ(difference(a, b).size(), 2u);
}

TEST(Formats, RoundAndGroup) {
  EXPECT_EQ(decimal(1234567, 0), "1,234,567");
  EXPECT_EQ(decimal(-123456.78, 1), "-123,456.8");
  EXPECT_EQ(decimal(123, 0), "123");
  EXPECT_EQ(decimal(0.123456, -3), "0.123");
  EXPECT_EQ(decimal(0.0123456, -3), "0.0123");
  EXPECT_EQ(decimal(12.3456, -3), "12.3");
  EXPECT_EQ(decimal(12345.6, -3), "12,346");
  EXPECT_EQ(decimal(0, -3), "0.00");
  EXPECT_EQ(decimal(3.14e-5, -2), "3.1e-05");
  EXPECT_EQ(decimal(std::nan(""), 2), "–");
  EXPECT_EQ(duration(0.0385), "38.5 ms");
  EXPECT_EQ(duration(59.96), "1 min 00 s");
  EXPECT_EQ(duration(674), "11 min 14 s");
  EXPECT_EQ(duration(3725), "1 h 02 min");
  EXPECT_EQ(formatted(0.2137, {0.01, 1, " %"}), "21.4 %");
  EXPECT_EQ(exact(0.1), "0.1");
}

TEST(Escape, LeavesNoMarkup) {
  EXPECT_EQ(escape("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(escape("größe €\U0001F600"), "größe €\U0001F600");
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(escape("\xC0\xAF"), bad + bad);            // overlong
  EXPECT_EQ(escape("\xED\xA0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(escape("a\xE2\x82"), "a" + bad + bad);     // cut off
  EXPECT_EQ(escape(std::string("\0\x1b\n", 3)), bad + bad + "\n");
}

}  // namespace
}  // namespace chorus::report
