// The sections of docs/errors.md in their order; each is a function in a file of its own.
#pragma once
#include "errors/error_table.h"

namespace chorus::errors {

void command_line_errors(ErrorTable& table);
void configuration_errors(ErrorTable& table);
void rank_errors(ErrorTable& table);
void manifest_errors(ErrorTable& table);
void audio_errors(ErrorTable& table);
void text_errors(ErrorTable& table);
void tokenizer_errors(ErrorTable& table);
void training_errors(ErrorTable& table);
void checkpoint_errors(ErrorTable& table);
void write_errors(ErrorTable& table);

/// All of them.
inline void every_error(ErrorTable& table) {
  command_line_errors(table);
  configuration_errors(table);
  rank_errors(table);
  manifest_errors(table);
  audio_errors(table);
  text_errors(table);
  tokenizer_errors(table);
  training_errors(table);
  checkpoint_errors(table);
  write_errors(table);
}

}  // namespace chorus::errors
