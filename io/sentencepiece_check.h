// What a SentencePiece model must be before the library may read it.
#pragma once
#include <string>
#include <string_view>

namespace chorus {

/// SentencePiece takes a model's word for where its normalisation table leads and what its scores are, and reads wild memory or
/// ends the process where it lies (docs/fuzzing.md). Throws, naming `name` and what is wrong, unless the bytes are a message of
/// the shape of sentencepiece_model.proto with valid pieces, finite scores, and a table (a Darts double array and its strings)
/// that every walk stays inside of.
void check_sentencepiece_model(std::string_view model, const std::string& name);

}  // namespace chorus
