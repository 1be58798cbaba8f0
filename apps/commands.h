// The commands of the `chorus` executable, each with its own options. They return the exit status.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace chorus {

inline constexpr int exit_stopped = 75;  ///< SIGTERM or SIGINT: a checkpoint was saved, the same command goes on

/// Each adds one subcommand; its result is left in `status` when it was chosen.
void add_train_command(CLI::App& app, int& status);
void add_transcribe_command(CLI::App& app, int& status);
void add_evaluate_command(CLI::App& app, int& status);
void add_data_command(CLI::App& app, int& status);

}  // namespace chorus
