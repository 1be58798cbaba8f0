// The sections of docs/errors.md in their order; each is a function in a file of its own.
#pragma once
#include "errors/error_table.h"

namespace chorus::errors {

void configuration_errors(ErrorTable& table);

/// All of them.
inline void every_error(ErrorTable& table) { configuration_errors(table); }

}  // namespace chorus::errors
