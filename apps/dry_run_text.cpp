#include <chorus/apps/dry_run.h>
#include <chorus/apps/text_table.h>
#include <chorus/core/text.h>

#include <algorithm>
#include <map>
#include <sstream>

namespace chorus {
namespace {

std::string shape_text(const Shape& shape) {
  std::ostringstream text;
  text << shape;
  return text.str();
}

std::string ratio(double part, double whole) {
  if (whole == 0) return part == 0 ? "-" : "inf";
  std::ostringstream text;
  text.precision(3);
  text.setf(std::ios::fixed);
  text << part / whole;
  return text.str();
}

/// In which phases something trains.
std::string training_text(const std::vector<bool>& trains, const DryRun& plan) {
  std::string names;
  for (std::size_t i = 0; i < trains.size(); ++i)
    if (trains[i]) names += (names.empty() ? "" : ", ") + plan.phases[i].name;
  if (names.empty()) return "never";
  return std::find(trains.begin(), trains.end(), false) == trains.end() ? "always" : names;
}

bool used(std::size_t category, const std::vector<const MemoryUse*>& uses) {
  return std::any_of(uses.begin(), uses.end(), [&](const MemoryUse* use) { return use->of[category] > 0; });
}

}  // namespace

std::string parameter_text(const DryRun& plan) {
  const bool shared = plan.layout.tp > 1;
  std::vector<std::vector<std::string>> rows{{"parameter", "trains", "shape", "values"}};
  if (shared) rows[0].push_back("held by rank 0");
  std::vector<std::string> modules;
  std::map<std::string, std::int64_t> totals;
  std::vector<std::int64_t> trained(plan.phases.size());
  std::int64_t all = 0;
  for (const auto& parameter : plan.parameters) {
    const std::int64_t count = parameter.shape.numel();
    rows.push_back({parameter.path, training_text(parameter.trains, plan), shape_text(parameter.shape), std::to_string(count)});
    if (shared) rows.back().push_back(shape_text(parameter.held));
    const std::string module = parameter.path.substr(0, parameter.path.find('.'));
    if (totals.emplace(module, 0).second) modules.push_back(module);
    totals[module] += count;
    all += count;
    for (std::size_t i = 0; i < trained.size(); ++i) trained[i] += parameter.trains[i] ? count : 0;
  }
  std::vector<std::vector<std::string>> sums{{"module", "values"}};
  for (const auto& module : modules) sums.push_back({module, std::to_string(totals[module])});
  sums.push_back({"all", std::to_string(all)});
  for (std::size_t i = 0; i < trained.size(); ++i)
    sums.push_back({"trained in phase " + plan.phases[i].name, std::to_string(trained[i])});
  return text_table(rows, 2) + '\n' + text_table(sums);
}

std::string batch_text(const DryRun& plan) {
  std::vector<std::vector<std::string>> rows{
      {"phase", "steps", "epochs", "batches", "samples", "most samples", "most frames", "most tokens", "left out"}};
  for (const auto& phase : plan.phases) {
    const std::string epochs = std::to_string(phase.first_epoch) + " to " +
                               (phase.all_epochs ? std::to_string(phase.first_epoch + phase.epochs - 1) : "...");
    rows.push_back({phase.name, std::to_string(phase.steps), epochs, std::to_string(phase.batches),
                    std::to_string(phase.samples), std::to_string(phase.most_samples), std::to_string(phase.most_frames),
                    std::to_string(phase.most_tokens), phase.left_out});
  }
  return text_table(rows);
}

std::string memory_text(const DryRun& plan) {
  std::vector<std::vector<std::string>> rows{{"bytes of tensors"}};
  std::vector<const MemoryUse*> uses;
  for (const auto& phase : plan.phases) {
    rows[0].push_back(phase.name);
    uses.push_back(&phase.fixed);
    uses.push_back(&phase.step);
  }
  for (std::size_t i = 0; i < category_count; ++i) {
    if (!used(i, uses)) continue;
    rows.push_back({std::string(name(static_cast<Category>(i)))});
    for (const auto& phase : plan.phases) rows.back().push_back(human_bytes(phase.fixed.of[i] + phase.step.of[i]));
  }
  rows.push_back({"peak of a step"});
  rows.push_back({"peak of the run so far"});
  rows.push_back({"heaviest microbatch: encoder rows"});
  rows.push_back({"                     decoder rows"});
  for (const auto& phase : plan.phases) {
    const std::size_t last = rows.size();
    rows[last - 4].push_back(human_bytes(phase.fixed.total + phase.step.total));
    rows[last - 3].push_back(human_bytes(phase.run_peak));
    rows[last - 2].push_back(std::to_string(phase.heaviest.encoder));
    rows[last - 1].push_back(std::to_string(phase.heaviest.decoder));
  }
  return text_table(rows) + "  beside tensors: batches prepared ahead " + human_bytes(plan.loader_bytes) +
         ", decoded sound kept up to " + human_bytes(plan.cache_bytes) + '\n';
}

std::string formula_text(const DryRun& plan) {
  std::string out;
  for (const auto& phase : plan.phases) out += (out.empty() ? "" : "\n") + memory_report_text(phase.report);
  return out;
}

std::string comparison_text(const DryRun& plan, const std::vector<MeasuredPhase>& measured) {
  require(plan.phases.size() == measured.size(), "dry run", plan.phases.size(), " phases planned, ", measured.size(),
          " measured");
  std::vector<std::vector<std::string>> rows{{"phase", "memory", "estimated", "measured", "ratio"}};
  const auto add = [&](const std::string& phase, const std::string& what, double estimate, double value) {
    rows.push_back({phase, what, human_bytes(estimate), human_bytes(value), ratio(estimate, value)});
  };
  for (std::size_t p = 0; p < measured.size(); ++p) {
    const auto& estimate = plan.phases[p];
    for (std::size_t i = 0; i < category_count; ++i)
      if (used(i, {&estimate.fixed, &estimate.step, &measured[p].use}))
        add(estimate.name, std::string(name(static_cast<Category>(i))), estimate.fixed.of[i] + estimate.step.of[i],
            measured[p].use.of[i]);
    add(estimate.name, "peak of a step", estimate.fixed.total + estimate.step.total, measured[p].use.total);
    add(estimate.name, "peak of the run so far", estimate.run_peak, measured[p].run_peak);
  }
  return text_table(rows, 2);
}

}  // namespace chorus
