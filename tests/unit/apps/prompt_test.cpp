#include <chorus/apps/prompt.h>
#include <gmock/gmock.h>

namespace chorus {
namespace {

using ::testing::HasSubstr;

Tokenizer letters() {
  const std::vector<std::string> texts{"abc def", "fed cba", "a b c d e f"};
  return Tokenizer(train_tokenizer(texts, {.type = "char"}));
}

std::string error_of(const std::string& prompt, const Tokenizer& tokenizer) {
  try {
    Prompt(prompt, tokenizer);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Prompt, PutsTextAudioAndAnswerInOrder) {
  const Tokenizer tokenizer = letters();
  const Prompt prompt("{bos}ab{audio}c{answer}d{eos}", tokenizer);
  const auto ids = [&](std::string_view text) { return tokenizer.encode(text); };
  std::vector<std::int32_t> expected{tokenizer.bos()};
  for (const int id : ids("ab")) expected.push_back(id);
  expected.push_back(tokenizer.audio());
  for (const int id : ids("c")) expected.push_back(id);
  const Conversation question = prompt.ask(7);
  EXPECT_EQ(question.id, 7);
  EXPECT_EQ(question.tokens, expected);
  EXPECT_EQ(question.answer, std::vector<std::uint8_t>(expected.size(), 0));

  const std::vector<std::int32_t> answer{ids("f")[0], ids("e")[0]};
  const Conversation whole = prompt.train(7, answer);
  expected.insert(expected.end(), answer.begin(), answer.end());
  expected.push_back(ids("d")[0]);
  expected.push_back(tokenizer.eos());
  EXPECT_EQ(whole.tokens, expected);
  // The answer, what follows it and the end are trained; nothing before is.
  EXPECT_EQ(std::count(whole.answer.begin(), whole.answer.end(), 1), 4);
  EXPECT_EQ(prompt.trained_tokens(), 2);
}

TEST(Prompt, RefusesTemplatesThatMakeNoSense) {
  const Tokenizer tokenizer = letters();
  EXPECT_THAT(error_of("{audio}{bos}", tokenizer), HasSubstr("no {answer}"));
  EXPECT_THAT(error_of("{bos}{answer}", tokenizer), HasSubstr("0 {audio}"));
  EXPECT_THAT(error_of("{audio}{audio}{bos}{answer}", tokenizer), HasSubstr("2 {audio}"));
  EXPECT_THAT(error_of("{audio}{bos}{answer}{answer}", tokenizer), HasSubstr("{answer} twice"));
  EXPECT_THAT(error_of("{bos}{answer}{audio}", tokenizer), HasSubstr("{audio} after {answer}"));
  EXPECT_THAT(error_of("{audio}{sbo}{answer}", tokenizer), HasSubstr("{sbo}"));
  EXPECT_THAT(error_of("{audio}{bos{answer}", tokenizer), HasSubstr("{bos{answer}"));
  EXPECT_THAT(error_of("{audio}{bos}{answer", tokenizer), HasSubstr("without its }"));
}

}  // namespace
}  // namespace chorus
