// Text to token ids and back, by SentencePiece models.
#pragma once
#include <chorus/core/config/check.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

struct TokenizerConfig {
  std::string type = "unigram";
  int vocab_size = 1024;
  std::string normalization = "identity";
  double character_coverage = 1;

  template <class V>
  void fields(V&& v) {
    v("type", type, "how text is cut", one_of("unigram", "bpe", "char"));
    v("vocab_size", vocab_size, "pieces including the special ones; type char takes what the texts have",
      between(8, 1'000'000));
    v("normalization", normalization, "done to text before", one_of("identity", "nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf"));
    v("character_coverage", character_coverage, "share of the texts' characters that get a piece", between(0.98, 1.0));
  }
};

/// Trains a model and returns its bytes, which `Tokenizer` takes and any SentencePiece reads. The same texts and keys give
/// the same bytes. Ids 0-5 are <unk>, <s>, </s>, <pad>, <|audio|> and <mask>; the last four are control pieces, which no text
/// can spell. Type char adds no space before the text, the others do. Throws with SentencePiece's reason.
std::string train_tokenizer(std::span<const std::string> texts, const TokenizerConfig& config);

class Tokenizer {
 public:
  /// Errors name the file: missing, or no valid model.
  static Tokenizer load(const std::filesystem::path& file);
  /// `name` stands for the file in errors.
  explicit Tokenizer(std::string model, const std::string& name = "model");
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Without beginning or end. Thread-safe.
  std::vector<int> encode(std::string_view text) const;
  /// Control pieces become nothing. Errors name ids outside [0, size).
  std::string decode(std::span<const int> ids) const;

  int size() const;
  int unk() const;
  int bos() const { return special("<s>"); }
  int eos() const { return special("</s>"); }
  int pad() const { return special("<pad>"); }
  /// What stands for an audio in a prompt; a model without such a piece has the id after its last one: it is never looked up.
  int audio() const { return has("<|audio|>") ? special("<|audio|>") : size(); }
  int mask() const { return special("<mask>"); }
  /// The id of a piece, or of the special piece of that name; throws when the model has none.
  int special(std::string_view piece) const;
  bool has(std::string_view piece) const;
  std::string piece(int id) const;
  /// Whether decoding turns it into nothing, like <s> and </s>.
  bool control(int id) const;
  /// What `train_tokenizer` returned or the file held.
  const std::string& model() const { return model_; }
  void save(const std::filesystem::path& file) const;

 private:
  struct Impl;
  std::string model_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace chorus
