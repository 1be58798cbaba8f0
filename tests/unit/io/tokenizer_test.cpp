#include <chorus/core/error.h>
#include <chorus/io/tokenizer.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>

namespace chorus {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<std::string> texts() {
  std::vector<std::string> out;
  const std::vector<std::string> words = {"please", "press", "one",     "two",  "three", "to",
                                          "hear",   "your",  "message", "it's", "again", "für"};
  for (std::size_t i = 0; i < 200; ++i)
    out.push_back(words[i % 12] + " " + words[i * 5 % 7] + " " + words[i * i % 11] + " " + words[i / 12 % 12]);
  return out;
}

TEST(Tokenizer, ShortTextsAreEnough) {
  const std::vector<std::string> few{"ab", "ba", "c"};
  EXPECT_EQ(Tokenizer(train_tokenizer(few, {.type = "char", .vocab_size = 8})).encode("abc").size(), 3u);
}

TEST(Tokenizer, CharactersRoundTripWithoutAnAddedSpace) {
  const Tokenizer t(train_tokenizer(texts(), {.type = "char", .vocab_size = 8}));
  std::set<std::string> characters;
  for (const std::string& text : texts()) {
    const std::vector<int> ids = t.encode(text);
    EXPECT_EQ(t.decode(ids), text);
    std::size_t length = 0;
    for (const char c : text) length += (c & 0xC0) != 0x80;
    EXPECT_EQ(ids.size(), length);
    for (const int id : ids) EXPECT_GE(id, 6);
  }
  // 18 letters, ü, the apostrophe and the space, after six special pieces.
  EXPECT_EQ(t.encode("one two").size(), 7u);
  EXPECT_EQ(t.encode("ü").size(), 1u);
  EXPECT_EQ(t.encode("Q"), std::vector<int>{t.unk()});
  EXPECT_TRUE(t.encode("").empty());
  for (const std::string& text : texts())
    for (const char c : text) characters.insert(std::string(1, c));
  EXPECT_EQ(t.size(), static_cast<int>(characters.size()) - 1 + 6) << "two bytes of ü are one character";
}

TEST(Tokenizer, SpecialPiecesHaveFixedIdsAndNoTextSpellsThem) {
  for (const char* type : {"char", "unigram", "bpe"}) {
    const Tokenizer t(train_tokenizer(texts(), {.type = type, .vocab_size = 36}));
    EXPECT_EQ(t.unk(), 0);
    EXPECT_EQ(t.bos(), 1);
    EXPECT_EQ(t.eos(), 2);
    EXPECT_EQ(t.pad(), 3);
    EXPECT_EQ(t.audio(), 4);
    EXPECT_EQ(t.mask(), 5);
    EXPECT_THAT(t.encode("<|audio|></s><mask>"), ::testing::Not(::testing::Contains(::testing::AnyOf(1, 2, 3, 4, 5))));
    std::vector<int> ids = t.encode("press one");
    ids.insert(ids.begin(), {t.bos(), t.audio()});
    ids.push_back(t.eos());
    EXPECT_EQ(t.decode(ids), "press one") << type;
    EXPECT_FALSE(t.has("<|nothing|>"));
    EXPECT_THAT([&] { t.special("<|nothing|>"); }, ThrowsMessage<Error>(HasSubstr("no piece <|nothing|>")));
    EXPECT_THAT([&] { t.decode(std::vector<int>{1, 1000}); }, ThrowsMessage<Error>(HasSubstr("id 1000 at 1")));
  }
}

TEST(Tokenizer, WithoutAnAudioPieceItsIdLiesBehindTheVocabulary) {
  std::string model = train_tokenizer(texts(), {.type = "char"});
  const std::string piece = "<|audio|>", other = "<|other|>";  // as in a model of somebody else's
  model.replace(model.find(piece), piece.size(), other);
  const Tokenizer t(model);
  EXPECT_FALSE(t.has(piece));
  EXPECT_EQ(t.audio(), t.size());
}

TEST(Tokenizer, SubwordsHaveTheAskedSizeAndShortenText) {
  for (const char* type : {"unigram", "bpe"}) {
    const Tokenizer t(train_tokenizer(texts(), {.type = type, .vocab_size = 36}));
    EXPECT_EQ(t.size(), 36) << type;
    EXPECT_LT(t.encode("please press three again").size(), 16u) << type;
    EXPECT_EQ(t.decode(t.encode("please press three again")), "please press three again") << type;
  }
}

TEST(Tokenizer, TrainingIsDeterministic) {
  for (const char* type : {"char", "unigram", "bpe"}) {
    const TokenizerConfig config{.type = type, .vocab_size = 36};
    EXPECT_EQ(train_tokenizer(texts(), config), train_tokenizer(texts(), config)) << type;
  }
}

TEST(Tokenizer, ErrorsSayWhatIsWrong) {
  const auto folder = std::filesystem::temp_directory_path() / ("chorus_tokenizer_test." + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  EXPECT_THAT([&] { Tokenizer::load(folder / "none.model"); }, ThrowsMessage<Error>(HasSubstr("cannot open")));
  EXPECT_THAT([&] { Tokenizer::load(folder); }, ThrowsMessage<Error>(HasSubstr(folder.string())));
  std::ofstream(folder / "broken.model") << "no model";
  EXPECT_THAT([&] { Tokenizer::load(folder / "broken.model"); },
              ThrowsMessage<Error>(HasSubstr("broken.model is no SentencePiece model")));
  std::ofstream(folder / "empty.model").close();
  EXPECT_THAT([&] { Tokenizer::load(folder / "empty.model"); },
              ThrowsMessage<Error>(HasSubstr("empty.model is no SentencePiece model")));
  EXPECT_THAT([&] { train_tokenizer({}, {}); }, ThrowsMessage<Error>(HasSubstr("0 texts")));
  EXPECT_THAT([&] { train_tokenizer(texts(), {.type = "unigram", .vocab_size = 5000}); },
              ThrowsMessage<Error>(HasSubstr("unigram with vocab_size 5000 on 200 texts")));
  const Tokenizer t(train_tokenizer(texts(), {.type = "char"}));
  t.save(folder / "good.model");
  EXPECT_EQ(Tokenizer::load(folder / "good.model").model(), t.model());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace chorus
