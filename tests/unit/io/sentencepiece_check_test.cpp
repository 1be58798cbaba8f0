// Models that SentencePiece would crash on are refused before it sees them; those that it makes pass.
#include <chorus/io/sentencepiece_check.h>
#include <chorus/io/tokenizer.h>
#include <gmock/gmock.h>
#include <unit/io/files_fixture.h>

#include <limits>

namespace chorus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string model(const std::string& normalization) {
  const std::vector<std::string> texts = {"hello there", "the quick brown fox", "Zoe Andrade"};
  return train_tokenizer(texts, {.type = "char", .normalization = normalization});
}

std::string error(const std::string& model) {
  return error_of([&] { check_sentencepiece_model(model, "some.model"); });
}

TEST(SentencePieceCheck, AcceptsWhatSentencePieceMakes) {
  for (const char* normalization : {"identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"}) {
    EXPECT_EQ(error(model(normalization)), "no error") << normalization;
    EXPECT_GT(Tokenizer(model(normalization)).size(), 6) << normalization;
  }
}

TEST(SentencePieceCheck, RefusesWhatIsNoModel) {
  const std::string whole = model("identity");
  EXPECT_THAT(error(""), AllOf(HasSubstr("some.model is no SentencePiece model (0 bytes)"), HasSubstr("no pieces")));
  EXPECT_THAT(error("hello"), HasSubstr("some.model is no SentencePiece model"));
  EXPECT_THAT(error(whole + "\x0a"), HasSubstr("some.model is no SentencePiece model"));
  EXPECT_THAT(error(whole + "\x0a\x7f"), HasSubstr("a field of 127 bytes where 0 are left"));
  EXPECT_THAT(error(whole + std::string(12, '\xff')), HasSubstr("a number without an end"));
}

/// A piece of type 1 in the wire format.
std::string piece(const std::string& text, float score) {
  std::string inner = "\x0a" + std::string(1, static_cast<char>(text.size())) + text + "\x15";
  inner.append(reinterpret_cast<const char*>(&score), sizeof score);
  return "\x0a" + std::string(1, static_cast<char>(inner.size())) + inner;
}

TEST(SentencePieceCheck, RefusesPiecesThatBreakItsTries) {
  const std::string whole = model("identity");
  EXPECT_EQ(error(whole + piece("xyz", -1)), "no error");
  EXPECT_THAT(error(whole + piece("", -1)), HasSubstr("has no text"));
  EXPECT_THAT(error(whole + piece(std::string("a\0b", 3), -1)), HasSubstr("holds a zero byte"));
  EXPECT_THAT(error(whole + piece("xyz", std::numeric_limits<float>::quiet_NaN())), HasSubstr("score"));
  EXPECT_THAT(error(whole + piece("xyz", std::numeric_limits<float>::infinity())), HasSubstr("is inf"));
}

TEST(SentencePieceCheck, RefusesNormalisationTablesThatLeadOutside) {
  const std::string whole = model("nmt_nfkc");
  // The table is the longest field by far: its size, the trie's units, the strings.
  const std::size_t name = whole.find("nmt_nfkc"), start = whole.find('\x12', name) + 4;
  ASSERT_NE(name, whole.npos);
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, whole.data() + start, sizeof bytes);
  ASSERT_GT(bytes, 100'000u) << "this is not where the table begins";
  ASSERT_LT(bytes, whole.size());
  const auto with = [&](std::size_t at, std::uint32_t unit) {
    std::string changed = whole;
    std::memcpy(changed.data() + at, &unit, sizeof unit);
    return error(changed);
  };
  EXPECT_THAT(with(start, bytes + 1), HasSubstr("the trie of its normalisation table has"));
  EXPECT_THAT(with(start, 0xFFFFFFF0u), HasSubstr("the trie of its normalisation table has"));
  EXPECT_THAT(with(start + 4, 0x7FFFFC00u), HasSubstr("leads outside"));  // the root's offset
  // Wherever a table is damaged, it is refused or every walk stays inside: encoding then is safe.
  int refused = 0;
  for (std::size_t unit = 0; unit < 24; ++unit) {
    std::string changed = whole;
    const std::uint32_t far = 0x7FFFF4FFu;
    std::memcpy(changed.data() + start + 4 + 4 * ((unit * 5077) % (bytes / 4)), &far, sizeof far);
    if (error(changed) != "no error") {
      ++refused;
      continue;
    }
    Tokenizer(changed).encode("\xE2\x91\xA0 \xEF\xBC\xA1 caf\xC3\xA9 \xE3\x8E\x8F");
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace chorus
