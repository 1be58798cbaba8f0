// The parts of a report, each as HTML; empty where a run has nothing to say about it.
#pragma once
#include <chorus/apps/report/chart.h>

#include <span>

namespace chorus::report {

using Runs = std::span<const Run>;

/// "0/" and so on with several runs.
std::string key_prefix(Runs runs, std::size_t run);
/// "1-400": all steps of a run, in keys.
std::string all_steps(const Run& run);

/// Whether the decoder was trained (its loss weighed in) in the phase of this name.
bool trains_decoder(const Run& run, std::string_view phase);
/// Of the last evaluation, the part that counts: "llm" or, without a trained decoder, "ctc"; "text" for a decoder that hears
/// nothing; empty without any.
std::string main_part(const Run& run);

/// The figures that sum up a run: cards for one run, a table for several.
struct Figure {
  std::string label, text, hint;  ///< text is HTML
};
std::vector<Figure> headline(Runs runs, std::size_t run);

/// All charts of the page, in order; `group` is the heading they belong under.
struct PlacedChart {
  enum Group { learning, speed, memory } group;
  bool wide = false;
  Chart chart;
};
std::vector<PlacedChart> charts(Runs runs);

/// Whether any run was evaluated after different steps.
bool evaluated_repeatedly(Runs runs);
/// The last evaluation of each run, where there are no curves of them.
std::string evaluations(Runs runs);

std::string operations(Runs runs);
std::string transcripts(Runs runs);
std::string dropped(Runs runs);

}  // namespace chorus::report
