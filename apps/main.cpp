// chorus: train, evaluate and use speech-LLMs.
#include <chorus/apps/command_line.h>
#include <chorus/core/config.h>
#include <chorus/core/cpu.h>
#include <chorus/core/text.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

/// Exit status of a wrong command line or configuration; other errors have 1.
constexpr int usage_error = 2;

/// Says so where the first word is no command: what the parser would say doesn't name the word.
bool unknown_command(const CLI::App& app, const std::string& word) {
  std::string hint;
  std::size_t fewest = 4;
  for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::size_t edits = chorus::edit_distance(word, command->get_name());
    if (edits == 0) return false;
    if (edits < fewest) fewest = edits, hint = "; the nearest is " + command->get_name();
  }
  std::fprintf(stderr, "chorus: there is no command '%s'%s\nRun with --help for more information.\n", word.c_str(),
               hint.c_str());
  return true;
}

int main(int argc, char** argv) {
  CLI::App app("Chorus trains speech-LLMs.");
  app.require_subcommand(1);
  int status = 0;
  chorus::add_train_command(app, status);
  chorus::add_plan_command(app, status);
  chorus::add_transcribe_command(app, status);
  chorus::add_evaluate_command(app, status);
  chorus::add_data_command(app, status);
  chorus::add_report_command(app, status);
  try {
    chorus::require_cpu(chorus::cpu_info());
    app.parse(argc, argv);
    // Transcripts that never reached a full disk are no success.
    errno = 0;
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      throw std::runtime_error(std::string("standard output can't be written") + (errno ? ": " : "") +
                               (errno ? std::strerror(errno) : ""));
    return status;
  } catch (const CLI::ParseError& error) {
    if (argc > 1 && argv[1][0] != '-' && unknown_command(app, argv[1])) return usage_error;
    return app.exit(error) == 0 ? 0 : usage_error;  // 0: help was asked for
  } catch (const chorus::ConfigError& error) {
    std::fprintf(stderr, "chorus: %s\n", error.what());
    return usage_error;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chorus: %s\n", error.what());
    return 1;
  }
}
