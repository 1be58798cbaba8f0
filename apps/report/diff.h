// Where a transcript differs from its reference.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chorus::report {

enum class Edit { equal, missing, added };

/// A stretch of text: in both, only in the reference, or only in the transcript.
struct Piece {
  Edit edit = Edit::equal;
  std::string text;
  friend bool operator==(const Piece&, const Piece&) = default;
};

/// Differences word by word, and letter by letter inside words that are alike. The pieces that aren't `added` spell the
/// reference, those that aren't `missing` the transcript, each with single spaces between its words.
std::vector<Piece> difference(std::string_view reference, std::string_view transcript);

std::vector<std::string_view> words(std::string_view text);

/// Errors as TextScore counts them, of one recording.
struct Errors {
  std::int64_t characters = 0, reference_characters = 0, words = 0, reference_words = 0;
};
Errors count_errors(std::string_view reference, std::string_view transcript);

}  // namespace chorus::report
