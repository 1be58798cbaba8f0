// What a person sees: the start banner, a line per step, a progress bar on terminals.
#pragma once
#include <chorus/apps/trainer.h>

#include <cstdio>
#include <string>

namespace chorus {

/// Lines go to stdout. The bar goes to stderr, if that is a terminal and neither NO_COLOR nor TERM=dumb is set.
class Console {
 public:
  Console();
  ~Console();
  void banner(const RunConfig& config, const std::string& file);
  void message(const std::string& text);
  /// A line every `every` steps, a bar in between on terminals.
  void step(const StepReport& report, std::int64_t every);
  void evaluation(const EvaluationReport& report);
  double matrix_peak() const { return matrix_peak_; }  ///< FLOP/s, measured for the banner

 private:
  void clear_bar();
  bool terminal_, bar_shown_ = false, stdout_failed_ = false;
  double matrix_peak_ = 0;
  // Sums since the last line: a line speaks of all steps that it stands for.
  std::int64_t steps_ = 0;
  double seconds_ = 0, wait_ = 0, flops_ = 0, audio_ = 0, rows_ = 0;
};

/// "loss 2.3102  llm 2.8010 ..." of one step.
std::string step_line(const StepReport& report);

}  // namespace chorus
