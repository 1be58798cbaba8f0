// How a sample is put into words for the decoder.
#pragma once
#include <chorus/io/tokenizer.h>
#include <chorus/models/salm/splice.h>

#include <string>
#include <string_view>
#include <vector>

namespace chorus {

/// What is wrong with a template, or nothing: an unknown {word}, a { without its }, {answer} or {audio} not there exactly once.
/// One for a model that doesn't listen must have no {audio}.
std::string prompt_problem(std::string_view text, bool listens = true);

/// A template such as "{bos}Transcribe: {audio}{answer}{eos}". {audio} stands for one audio, {answer} for the text to learn,
/// {bos} and {eos} for the tokenizer's pieces; everything between is tokenized as it stands, piece by piece. Loss is on the
/// answer and on what follows it. Training and transcription use the same template, so they can't disagree.
class Prompt {
 public:
  /// `listens`: whether the model hears; the template of one that doesn't has no {audio}. Throws, naming the template: a
  /// `prompt_problem`, or a piece that the tokenizer lacks.
  Prompt(std::string_view text, const Tokenizer& tokenizer, bool listens = true);

  /// The whole sample with its answer.
  Conversation train(std::int64_t id, const std::vector<std::int32_t>& answer) const;
  /// Everything before the answer.
  Conversation ask(std::int64_t id) const;
  /// Tokens of the template itself that are trained: what follows the answer.
  std::int64_t trained_tokens() const { return static_cast<std::int64_t>(after_.size()); }

 private:
  std::vector<std::int32_t> before_, after_;
};

}  // namespace chorus
