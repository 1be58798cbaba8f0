// Texts that can't be learned.
#include <fstream>

#include "errors/runs.h"
#include "errors/sections.h"

namespace chorus::errors {

void text_errors(ErrorTable& table) {
  table.section("Text", "Here too a bad line costs itself.");
  table.add("an empty text", [](Scene& s) {
    return costs_a_line(s, line("ab.wav", ""), "left out: train.jsonl:5", "1 without text", {"its text has no token"});
  });
  table.add("more than 5 % of the pieces unknown to the tokenizer (`batches.max_unknown_fraction`)", [](Scene& s) {
    s.write("letters.model", train_tokenizer(std::vector<std::string>{"abcd"}, {.type = "char"}));
    return costs_a_line(s, line("ab.wav", "axbycd"), "left out: train.jsonl:5", "1 with too many unknown pieces",
                        {"2 of its 6 pieces are unknown", "max_unknown_fraction = 0.05"}, {"tokenizer_model=letters.model"});
  });
  table.add("a text longer than its sound allows, by CTC (repeated letters need a frame between them)", [](Scene& s) {
    return costs_a_line(s, line("ab.wav", "aabbccddaabbccdd"), "no CTC loss: train.jsonl:5", "without CTC loss",
                        {"feature frames are too few for 16 tokens"}, {"batches.concat_probability=0"});
  });
  table.add("a text longer than its sound allows, by `batches.max_tokens_per_second`", [](Scene& s) {
    return costs_a_line(s, line("ab.wav", "abcdabcdabcd"), "left out: train.jsonl:5", "1 with too much text for their sound",
                        {"12 tokens in 0.32 s", "max_tokens_per_second = 20"}, {"batches.max_tokens_per_second=20"});
  });
  table.add("an id that was there before", [](Scene& s) {
    const std::string id = R"(, "id": "u1")";
    return costs_a_line(s, line("ab.wav", "ab", id) + line("bc.wav", "bc", id), "left out a duplicate: train.jsonl:6",
                        "1 with the id of another", {"id 'u1' is that of train.jsonl:5"});
  });
  table.add("broken UTF-8", [](Scene& s) {
    return costs_a_line(s, line("ab.wav", "a\xff"), "left out a line", "1 with an unusable manifest line",
                        {"train.jsonl:5: byte 40 of the line, 255, belongs to no character of UTF-8"});
  });
}

}  // namespace chorus::errors
