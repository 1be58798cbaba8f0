#include <chorus/core/error.h>
#include <chorus/core/posix_file.h>
#include <chorus/io/sentencepiece_check.h>
#include <chorus/io/tokenizer.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <unordered_map>

namespace chorus {
namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{256} << 20;  // of a model file; a million pieces take 20 MB

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(std::span<const std::string> texts) : texts_(texts) {}
  bool done() const override { return at_ == texts_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return texts_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::span<const std::string> texts_;
  std::size_t at_ = 0;
};

/// What the library says, without the place in its source.
std::string reason(const sentencepiece::util::Status& status) {
  const std::string text = status.ToString();
  const auto end = text.rfind("] ");
  const std::string words = end == text.npos ? text : text.substr(end + 2);
  return words.empty() ? "it can't be parsed" : words;
}

}  // namespace

std::string train_tokenizer(std::span<const std::string> texts, const TokenizerConfig& config) {
  std::size_t longest = 0;
  for (const std::string& text : texts) longest = std::max(longest, text.size());
  require(longest > 0, "train_tokenizer", texts.size(), " texts, none with a character");
  const bool characters = config.type == "char";
  const std::unordered_map<std::string, std::string> keys = {
      {"model_type", config.type},
      {"vocab_size", std::to_string(config.vocab_size)},
      {"use_all_vocab", characters ? "true" : "false"},
      {"character_coverage", std::to_string(config.character_coverage)},
      {"normalization_rule_name", config.normalization},
      {"add_dummy_prefix", characters ? "false" : "true"},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"pad_id", "3"},
      {"control_symbols", "<|audio|>,<mask>"},
      {"max_sentence_length",
       std::to_string(std::max<std::size_t>(longest + 1, 10))},  // longer ones would be left out; 10 is its least
      {"num_threads", "1"},                                      // sums of several threads would depend on their order
      {"minloglevel", "2"}};
  Sentences sentences(texts);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(keys, &sentences, &model);
  require(status.ok(), "train_tokenizer", config.type, " with vocab_size ", config.vocab_size, " on ", texts.size(),
          " texts: ", reason(status));
  return model;
}

struct Tokenizer::Impl {
  sentencepiece::SentencePieceProcessor processor;
};

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer::Tokenizer(std::string model, const std::string& name) : model_(std::move(model)), impl_(std::make_unique<Impl>()) {
  check_sentencepiece_model(model_, name);
  const auto loaded = [&]() -> std::string {
    try {
      const auto status = impl_->processor.LoadFromSerializedProto(model_);
      if (!status.ok()) return std::string("the library refuses it: ") + reason(status);
      return impl_->processor.GetPieceSize() > 0 ? "" : "it has no pieces";
    } catch (const std::exception& error) {  // of the tries inside it
      return error.what();
    }
  }();
  require(loaded.empty(), "Tokenizer", name, " is no SentencePiece model (", model_.size(), " bytes): ", loaded);
}

Tokenizer Tokenizer::load(const std::filesystem::path& file) { return Tokenizer(read_file(file, most_bytes), file.string()); }

void Tokenizer::save(const std::filesystem::path& file) const { write_file_atomically(file, model_); }

std::vector<int> Tokenizer::encode(std::string_view text) const {
  std::vector<int> ids;
  const auto status = impl_->processor.Encode(absl::string_view(text.data(), text.size()), &ids);
  require(status.ok(), "Tokenizer::encode", "\"", text, "\": ", status.message());
  return ids;
}

std::string Tokenizer::decode(std::span<const int> ids) const {
  for (std::size_t i = 0; i < ids.size(); ++i)
    require(ids[i] >= 0 && ids[i] < size(), "Tokenizer::decode", "id ", ids[i], " at ", i, " is not in [0, ", size(), ")");
  std::string text;
  const auto status = impl_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  require(status.ok(), "Tokenizer::decode", ids.size(), " ids: ", status.message());
  return text;
}

int Tokenizer::size() const { return impl_->processor.GetPieceSize(); }
int Tokenizer::unk() const { return impl_->processor.unk_id(); }

bool Tokenizer::has(std::string_view piece) const {
  const int id = impl_->processor.PieceToId(absl::string_view(piece.data(), piece.size()));
  return id != unk() || impl_->processor.IdToPiece(id) == piece;
}

int Tokenizer::special(std::string_view piece) const {
  require(has(piece), "Tokenizer", "the model has no piece ", piece);
  return impl_->processor.PieceToId(absl::string_view(piece.data(), piece.size()));
}

std::string Tokenizer::piece(int id) const {
  require(id >= 0 && id < size(), "Tokenizer::piece", "id ", id, " is not in [0, ", size(), ")");
  return impl_->processor.IdToPiece(id);
}

bool Tokenizer::control(int id) const {
  require(id >= 0 && id < size(), "Tokenizer::control", "id ", id, " is not in [0, ", size(), ")");
  return impl_->processor.IsControl(id);
}

}  // namespace chorus
