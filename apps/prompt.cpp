#include <chorus/apps/prompt.h>
#include <chorus/core/error.h>

namespace chorus {

Prompt::Prompt(std::string_view text, const Tokenizer& tokenizer) {
  const std::string all(text);
  bool answered = false;
  int audios = 0;
  auto* target = &before_;
  while (!text.empty()) {
    const auto open = text.find('{');
    const auto literal = text.substr(0, open);
    for (const int id : tokenizer.encode(literal)) target->push_back(id);
    if (open == text.npos) break;
    const auto close = text.find('}', open);
    require(close != text.npos, "prompt", "'", all, "' has a { without its }");
    const auto word = text.substr(open + 1, close - open - 1);
    if (word == "answer") {
      require(!answered, "prompt", "'", all, "' has {answer} twice");
      answered = true;
      target = &after_;
    } else if (word == "audio") {
      require(!answered, "prompt", "'", all, "' has {audio} after {answer}");
      ++audios;
      target->push_back(tokenizer.audio());
    } else if (word == "bos") {
      target->push_back(tokenizer.bos());
    } else {
      require(word == "eos", "prompt", "'", all, "' has {", word, "}; {audio}, {answer}, {bos} and {eos} are there");
      target->push_back(tokenizer.eos());
    }
    text.remove_prefix(close + 1);
  }
  require(answered && audios == 1, "prompt", "'", all, "' has ", audios, " {audio} and ", answered ? "an" : "no",
          " {answer}; one of each is needed");
  require(before_.size() > 1, "prompt", "'", all, "' has no token between {audio} and {answer} or before: add {bos}");
}

Conversation Prompt::train(std::int64_t id, const std::vector<std::int32_t>& answer) const {
  Conversation c = ask(id);
  c.tokens.insert(c.tokens.end(), answer.begin(), answer.end());
  c.tokens.insert(c.tokens.end(), after_.begin(), after_.end());
  c.answer.resize(c.tokens.size(), 1);
  return c;
}

Conversation Prompt::ask(std::int64_t id) const { return {id, before_, std::vector<std::uint8_t>(before_.size(), 0)}; }

}  // namespace chorus
