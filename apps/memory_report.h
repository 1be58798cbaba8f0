// What a phase of training takes of a rank's memory, by category, beside what formulas say of it.
#pragma once
#include <chorus/apps/memory_probe.h>

#include <optional>

namespace chorus {

/// Bytes of one rank; empty where nothing is said.
struct MemoryLine {
  std::string name;  ///< that of the category, or what part of one it speaks of
  std::optional<double> formula, found;
};

struct MemoryReport {
  std::string phase;
  std::int64_t step = 0;  ///< after which it was found; 0: estimated before training
  RowCounts rows;         ///< of the heaviest microbatch
  /// - parameters, gradients, optimizer: ZeRO's bytes per parameter (shared_state) of what the first rank's part of the model
  /// has;
  /// - activations: what layers keep of the heaviest microbatch (kept_by_layer), and one of them once more where layers are
  ///   computed again; subsampling, heads and losses have no formula. "decoder, counted" is the decoder's share of it,
  ///   "decoder, quoted" what Korthikanti et al. (2022) would say in its place (quoted_for_layer);
  /// - communication: what is gathered and of gradients not yet summed (StateMemory);
  /// - workspace, total: found only.
  std::vector<MemoryLine> lines;
};

/// `found`: the most that a rank has in use of each category during a step; `rows`: of the heaviest microbatch.
MemoryReport memory_report(const RunConfig& config, const PhaseConfig& phase, const Tokenizer& tokenizer,
                           const MeshShape& layout, const RowCounts& rows, const MemoryUse& found);

/// A table for people, with the ratio of formula and what was found.
std::string memory_report_text(const MemoryReport& report);

struct StepReport;

/// Collects what the first steps of a phase take.
class FirstSteps {
 public:
  static constexpr int enough = 3;
  /// Every step of a run. True once in a phase: after `enough` of its steps in this process, or after its last one.
  bool seen(const StepReport& step, const PhaseConfig& phase, bool last);
  /// Of the steps seen of the phase.
  MemoryReport report(const RunConfig& config, const Tokenizer& tokenizer, const MeshShape& layout) const;

 private:
  const PhaseConfig* phase_ = nullptr;
  int steps_ = 0;
  std::int64_t last_step_ = 0;
  MemoryUse use_;
  RowCounts rows_;
};

}  // namespace chorus
