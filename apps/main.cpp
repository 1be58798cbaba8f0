// chorus: train, evaluate and use speech-LLMs.
#include <chorus/apps/command_line.h>
#include <chorus/core/config.h>
#include <chorus/core/cpu.h>

#include <cstdio>
#include <stdexcept>

/// Exit status of a wrong command line or configuration; other errors have 1.
constexpr int usage_error = 2;

int main(int argc, char** argv) {
  CLI::App app("Chorus trains speech-LLMs.");
  app.require_subcommand(1);
  int status = 0;
  chorus::add_train_command(app, status);
  chorus::add_transcribe_command(app, status);
  chorus::add_evaluate_command(app, status);
  chorus::add_data_command(app, status);
  chorus::add_report_command(app, status);
  try {
    chorus::require_cpu(chorus::cpu_info());
    app.parse(argc, argv);
    // Transcripts that never reached a full disk are no success.
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) throw std::runtime_error("standard output can't be written");
    return status;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : usage_error;  // 0: help was asked for
  } catch (const chorus::ConfigError& error) {
    std::fprintf(stderr, "chorus: %s\n", error.what());
    return usage_error;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chorus: %s\n", error.what());
    return 1;
  }
}
