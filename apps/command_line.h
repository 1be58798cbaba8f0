// The words of the command line. Apart from the commands themselves, because CLI11 alone takes seconds to compile.
#pragma once
#include <CLI/CLI.hpp>

namespace chorus {

/// Each adds one subcommand; its result is left in `status` when it was chosen.
void add_train_command(CLI::App& app, int& status);
void add_plan_command(CLI::App& app, int& status);
void add_transcribe_command(CLI::App& app, int& status);
void add_evaluate_command(CLI::App& app, int& status);
void add_data_command(CLI::App& app, int& status);
void add_report_command(CLI::App& app, int& status);

}  // namespace chorus
