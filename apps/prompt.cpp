#include <chorus/apps/prompt.h>
#include <chorus/core/error.h>

namespace chorus {

std::string prompt_problem(std::string_view text, bool listens) {
  const std::string all = '\'' + std::string(text) + '\'';
  int answers = 0, audios = 0;
  bool token = false;  // before the answer, beside the audio
  while (!text.empty()) {
    const auto open = text.find('{');
    token = token || (answers == 0 && open != 0);
    if (open == text.npos) break;
    const auto close = text.find('}', open);
    if (close == text.npos) return all + " has a { without its }";
    const auto word = text.substr(open + 1, close - open - 1);
    if (word == "answer") {
      if (++answers > 1) return all + " has {answer} twice";
    } else if (word == "audio") {
      if (answers > 0) return all + " has {audio} after {answer}";
      ++audios;
    } else if (word == "bos" || word == "eos") {
      token = token || answers == 0;
    } else {
      return all + " has {" + std::string(word) + "}; {audio}, {answer}, {bos} and {eos} are there";
    }
    text.remove_prefix(close + 1);
  }
  if (!listens && audios > 0) return all + " has {audio}, but model.perception is false";
  if (answers != 1 || audios != (listens ? 1 : 0))
    return all + " has " + std::to_string(audios) + " {audio} and " + (answers ? "an" : "no") + " {answer}; " +
           (listens ? "one of each is needed" : "one {answer} is needed");
  if (!token) return all + " has no token between {audio} and {answer} or before: add {bos}";
  return {};
}

Prompt::Prompt(std::string_view text, const Tokenizer& tokenizer, bool listens) {
  const std::string wrong = prompt_problem(text, listens);
  require(wrong.empty(), "prompt", wrong);
  const std::string all(text);
  const auto special = [&](const char* word, const char* piece) {
    require(tokenizer.has(piece), "prompt", "'", all, "' has {", word, "}, but the tokenizer has no piece ", piece,
            " among its ", tokenizer.size(), "; take it out of the prompt or another tokenizer_model");
    return tokenizer.special(piece);
  };
  auto* target = &before_;
  while (!text.empty()) {
    const auto open = text.find('{');
    for (const int id : tokenizer.encode(text.substr(0, open))) target->push_back(id);
    if (open == text.npos) break;
    const auto close = text.find('}', open);
    const auto word = text.substr(open + 1, close - open - 1);
    if (word == "answer")
      target = &after_;
    else if (word == "audio")
      target->push_back(tokenizer.audio());
    else
      target->push_back(word == "bos" ? special("bos", "<s>") : special("eos", "</s>"));
    text.remove_prefix(close + 1);
  }
  require(before_.size() > (listens ? 1 : 0), "prompt", "'", all,
          "' has no token between {audio} and {answer} or before: add {bos}");
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
