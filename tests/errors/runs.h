// Tiny runs for the cases: a corpus of tones in the scene's folder and a model that trains on it in a blink.
#pragma once
#include <initializer_list>

#include "e2e/tiny_run.h"
#include "errors/error_table.h"

namespace chorus::errors {

/// A line of a manifest.
std::string line(const std::string& audio, const std::string& text, const std::string& more = "");

/// Sounds and "train.jsonl" with four good recordings ab.wav, bc.wav, abc.wav and bcd.wav, and then `lines` more (each with its
/// end of line).
void write_corpus(const Scene& scene, const std::string& lines = "");

/// The tiny model's configuration on "train.jsonl", with its folder "run"; two steps in each of its two phases.
RunConfig tiny(std::vector<std::string> overrides = {});

/// What a run of `tiny(overrides)` said, with the number of steps it made and all that it dropped.
struct Trained {
  testing::Heard heard;
  TrainingResult result;
  /// The message with `part`; a failure of the test where there is none.
  std::string said(std::string_view part) const;
};
/// Trains to the end; a failure of the test where that isn't reached.
std::unique_ptr<Trained> train_tiny(std::vector<std::string> overrides = {});

/// Trains on the corpus with one more line, which must cost that line only: its message, and "training goes on ..." with the
/// count `reason`.
Seen costs_a_line(const Scene& scene, const std::string& bad_line, std::string_view message, const std::string& reason,
                  std::initializer_list<std::string_view> parts, std::vector<std::string> overrides = {});

}  // namespace chorus::errors
