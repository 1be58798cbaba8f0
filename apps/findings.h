// Findings about corpora, for people.
#pragma once
#include <chorus/io/check.h>

namespace chorus {

/// Those of one kind stand together in the order given, each kind under a headline "<label>: <kind> (<count>)"; beyond `most`
/// of a kind (0: no limit) only their number.
std::string findings_text(std::span<const Finding> findings, std::size_t most, const std::string& warning_label = "warning");

/// A line for each: entries, hours, characters, speakers.
std::string totals_text(const std::string& title, const std::map<std::string, CorpusTotals>& totals);

}  // namespace chorus
