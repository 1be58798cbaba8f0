// What the files of a run folder say, as a report needs it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace chorus::report {

using Values = std::map<std::string, double, std::less<>>;

/// Steps first to last, both included.
struct PhaseSpan {
  std::string name;
  std::int64_t first = 0, last = 0;
};

/// A line "evaluation" or "interval": its numbers.
struct Record {
  std::string phase;
  std::int64_t step = 0;
  Values values;
};

struct TranscriptRow {
  std::int64_t step = 0;
  std::string recording, reference, llm, ctc;
  bool has_llm = false, has_ctc = false;
};

/// One run. Lines that a later invocation repeated are here once, as it wrote them (apps/run_record.h has the rule).
struct Run {
  std::filesystem::path folder;
  std::string name;  ///< of the folder
  /// Row i of each column belongs to steps[i]; not-a-number where a line lacks the key. Ascending, each step once.
  std::vector<std::int64_t> steps;
  std::map<std::string, std::vector<double>, std::less<>> columns;
  std::vector<PhaseSpan> phases;
  std::vector<Record> evaluations, intervals;
  Values dropped;                          ///< the newest counts by reason
  std::vector<TranscriptRow> transcripts;  ///< of the last evaluation that has any
  int invocations = 0;
  std::int64_t total_steps = 0, parameters = 0;  ///< 0: not known
  int ranks = 1;                                 ///< of the newest invocation, as is:
  std::string layout;                            ///< "TP2 SP DP2"; empty: not known
  double started = 0, written = 0;               ///< seconds since 1970: first invocation; newest line of metrics.jsonl
  std::string outcome;                           ///< finished, stopped, paused; empty: still going on, or interrupted
  std::string config;                            ///< text of config.toml
  std::vector<std::string> remarks;              ///< lines that were left out, and why

  const std::vector<double>* column(std::string_view key) const;
  const Record* last_evaluation() const { return evaluations.empty() ? nullptr : &evaluations.back(); }
};

/// Reads config.toml, metrics.jsonl and, where there is one, transcripts.jsonl. A last line that is cut off is a remark, and so
/// is a line that is no JSON. Throws, naming the folder, where there is no run.
Run read_run(const std::filesystem::path& folder);

}  // namespace chorus::report
