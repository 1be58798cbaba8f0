// Tokenizers that don't fit the texts, the prompt or the model.
#include "errors/runs.h"
#include "errors/sections.h"

namespace chorus::errors {
namespace {

std::string letters() { return train_tokenizer(std::vector<std::string>{"abcd"}, {.type = "char"}); }

/// The model with a piece of another name.
std::string without(std::string model, const std::string& piece, const std::string& other) {
  for (auto at = model.find(piece); at != model.npos; at = model.find(piece)) model.replace(at, piece.size(), other);
  return model;
}

Seen tokenizer_refused(std::vector<std::string> overrides, std::initializer_list<std::string_view> parts) {
  const std::string message = error_of([&] { train(tiny(std::move(overrides)), {}); });
  expect_parts(message, parts);
  EXPECT_FALSE(std::filesystem::exists("run/checkpoints"));
  return {message, "nothing was trained; exit status 1"};
}

}  // namespace

void tokenizer_errors(ErrorTable& table) {
  table.section("Tokenizer");
  table.add("a `tokenizer_model` that is none", [](Scene& s) {
    write_corpus(s);
    s.write("letters.model", "a b c d");
    return tokenizer_refused({"tokenizer_model=letters.model"}, {"letters.model is no SentencePiece model (7 bytes)"});
  });
  table.add("more pieces asked for than the texts give", [](Scene& s) {
    write_corpus(s);
    return tokenizer_refused({"tokenizer.type=unigram", "tokenizer.vocab_size=5000"},
                             {"unigram with vocab_size 5000 on 4 texts"});
  });
  table.add("a tokenizer without a piece that the prompt uses", [](Scene& s) {
    write_corpus(s);
    s.write("letters.model", without(letters(), "<s>", "<z>"));
    return tokenizer_refused({"tokenizer_model=letters.model"}, {"has {bos}, but the tokenizer has no piece <s>"});
  });
  table.add("a tokenizer without the piece that `token_corruption` uses", [](Scene& s) {
    write_corpus(s);
    s.write("letters.model", without(letters(), "<mask>", "<musk>"));
    return tokenizer_refused({"tokenizer_model=letters.model"}, {"phases[1].token_corruption is 0.2", "no piece <mask>"});
  });
  table.add("a run's tokenizer replaced by another one", [](Scene& s) {
    write_corpus(s);
    train_tiny();
    s.write("run/tokenizer.model", train_tokenizer(std::vector<std::string>{"abcde"}, {.type = "char"}));
    const std::string message = error_of([] { train(tiny(), {}); });
    expect_parts(message, {"run/tokenizer.model isn't the one that the checkpoints were trained with"});
    EXPECT_TRUE(std::filesystem::exists("run/checkpoints/step-000004"));
    return Seen{message, "the run and its checkpoints stay as they are; exit status 1"};
  });
}

}  // namespace chorus::errors
