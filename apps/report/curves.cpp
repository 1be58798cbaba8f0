// Which curves are drawn, and how.
#include <chorus/apps/report/sections.h>

#include <algorithm>
#include <cmath>

namespace chorus::report {
namespace {

/// The last steps of all runs; a chart with several runs shows the phases only if they are the same.
void set_range(Runs runs, Chart& chart) {
  chart.first = runs[0].steps.front();
  chart.last = runs[0].steps.back();
  for (const auto& run : runs) {
    chart.first = std::min(chart.first, run.steps.front());
    chart.last = std::max(chart.last, run.steps.back());
  }
  const auto same_phases = [&](const Run& run) {
    return std::ranges::equal(run.phases, runs[0].phases, {}, &PhaseSpan::first, &PhaseSpan::first);
  };
  if (std::ranges::all_of(runs, same_phases)) chart.phases = runs[0].phases;
}

std::string label(Runs runs, std::size_t run, const std::string& name) {
  return runs.size() == 1 ? name : name.empty() ? runs[run].name : runs[run].name + ", " + name;
}
int color(Runs runs, std::size_t run, int own) { return runs.size() == 1 ? own : static_cast<int>(run % 8) + 1; }

/// One column of the steps, of each run.
void add_column(Runs runs, Chart& chart, const std::string& column, const std::string& name, int own_color, bool band) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    auto b = buckets(runs[r], column);
    if (b.empty()) continue;
    chart.curves.push_back({.name = runs.size() == 1 ? name : runs[r].name,
                            .color = color(runs, r, own_color),
                            .buckets = std::move(b),
                            .prefix = key_prefix(runs, r),
                            .column = column,
                            .band = band && runs.size() == 1});
  }
}

/// Losses of a part count only in the phases that train it; elsewhere they are written as 0.
void add_loss(Runs runs, Chart& chart, const std::string& column, const std::string& name, int own_color) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const auto* values = runs[r].column(column);
    if (!values) continue;
    std::vector<double> trained = *values;
    std::ranges::replace(trained, 0.0, std::nan(""));
    if (std::ranges::none_of(trained, [](double x) { return std::isfinite(x); })) continue;
    chart.curves.push_back({.name = label(runs, r, name),
                            .color = color(runs, r, own_color),
                            .buckets = buckets(runs[r], trained),
                            .prefix = key_prefix(runs, r),
                            .column = column,
                            .band = runs.size() == 1,
                            .dashed = runs.size() > 1 && own_color == 2});
  }
}

void add_evaluation(Runs runs, Chart& chart, const std::string& key, const std::string& name, int own_color, bool dashed) {
  for (std::size_t r = 0; r < runs.size(); ++r) {
    std::vector<Bucket> b;
    for (const auto& evaluation : runs[r].evaluations) {
      const auto found = evaluation.values.find(key);
      if (found == evaluation.values.end() || !std::isfinite(found->second)) continue;
      if (key.starts_with("llm") && !trains_decoder(runs[r], evaluation.phase)) continue;
      if (key.ends_with("loss") && found->second == 0) continue;
      if (!b.empty() && b.back().last == evaluation.step) b.pop_back();  // the end of a run evaluates once more
      b.push_back({evaluation.step, evaluation.step, found->second, found->second, found->second});
    }
    if (b.empty()) continue;
    chart.curves.push_back({.name = label(runs, r, name),
                            .color = color(runs, r, own_color),
                            .buckets = std::move(b),
                            .prefix = key_prefix(runs, r),
                            .column = "evaluation." + key,
                            .points = true,
                            .dashed = dashed});
  }
}

Chart chart_of(Runs runs, std::string id, std::string title, std::string unit, Format format) {
  Chart chart;
  chart.id = std::move(id);
  chart.title = std::move(title);
  chart.unit = std::move(unit);
  chart.format = format;
  set_range(runs, chart);
  return chart;
}

bool has_decoder_and_ctc(Runs runs) {
  const auto any = [&](const char* column) {
    return std::ranges::any_of(runs, [&](const Run& run) {
      const auto* values = run.column(column);
      return values && std::ranges::any_of(*values, [](double x) { return x > 0; });
    });
  };
  return any("llm_loss") && any("ctc_loss");
}

Chart loss(Runs runs) {
  Chart chart = chart_of(runs, "loss", "Training loss", "nats per label", {1, 3, ""});
  chart.logarithmic = true;
  chart.from_zero = false;
  if (!has_decoder_and_ctc(runs)) {
    add_column(runs, chart, "loss", "loss", 1, true);
    return chart;
  }
  // What is trained lies under its parts.
  if (runs.size() == 1) add_column(runs, chart, "loss", "weighted sum", 6, false);
  add_loss(runs, chart, "llm_loss", "decoder", 1);
  add_loss(runs, chart, "ctc_loss", "CTC head", 2);
  return chart;
}

Chart memory(const Run& run) {
  const Runs runs(&run, 1);
  double most = 0;
  if (const auto* peaks = run.column("memory_step_peak_bytes")) most = largest(*peaks);
  Chart chart = chart_of(runs, "memory", "Memory by category", "", bytes_format(most));
  chart.unit = std::string(chart.format.unit.substr(1)) + ", the most of each category during a step";
  chart.format.digits = 1;
  chart.stacked = true;
  chart.note =
      "Categories reach their peaks at different moments, so the most that was in use at once may lie below the stack.";
  int own = 0;
  for (const char* category : {"parameters", "gradients", "optimizer", "activations", "workspace", "communication"}) {
    ++own;
    add_column(runs, chart, std::string("memory_peak.") + category, category, own, false);
  }
  if (chart.curves.empty()) return chart;
  add_column(runs, chart, "memory_step_peak_bytes", "in use at once", 0, false);
  return chart;
}

}  // namespace

bool evaluated_repeatedly(Runs runs) {
  return std::ranges::any_of(runs, [](const Run& run) {
    return !run.evaluations.empty() && run.evaluations.front().step != run.evaluations.back().step;
  });
}

std::vector<PlacedChart> charts(Runs runs) {
  std::vector<PlacedChart> out;
  const auto add = [&](PlacedChart::Group group, Chart chart, bool wide = false) {
    if (!chart.curves.empty()) out.push_back({group, wide, std::move(chart)});
  };
  add(PlacedChart::learning, loss(runs), true);

  const bool both = has_decoder_and_ctc(runs);
  Chart errors = chart_of(runs, "errors", "Held-out error rates", "%", {0.01, 1, " %"});
  Chart held_out = chart_of(runs, "held-out-loss", "Held-out loss", "nats per label", {1, 3, ""});
  if (runs.size() == 1) {
    add_evaluation(runs, errors, "llm_cer", "decoder, characters", 1, false);
    add_evaluation(runs, errors, "llm_wer", "decoder, words", 1, true);
    add_evaluation(runs, errors, "ctc_cer", "CTC head, characters", 2, false);
    add_evaluation(runs, errors, "ctc_wer", "CTC head, words", 2, true);
    add_evaluation(runs, held_out, "llm_loss", "decoder", 1, false);
    add_evaluation(runs, held_out, "ctc_loss", "CTC head", 2, false);
    if (both) errors.note = "The decoder is shown from the phase on that trains it.";
  } else {
    errors.title = "Held-out character errors";
    add_evaluation(runs, errors, "llm_cer", both ? "decoder" : "", 1, false);
    add_evaluation(runs, errors, "ctc_cer", both ? "CTC head" : "", 2, both);
    add_evaluation(runs, held_out, "llm_loss", both ? "decoder" : "", 1, false);
    add_evaluation(runs, held_out, "ctc_loss", both ? "CTC head" : "", 2, both);
  }
  held_out.from_zero = false;
  if (evaluated_repeatedly(runs)) {  // single points are no curves: the page has them as a table
    add(PlacedChart::learning, std::move(errors));
    add(PlacedChart::learning, std::move(held_out));
  }

  Chart rate = chart_of(runs, "lr", "Learning rate", "× 10⁻³", {1e-3, -3, " × 10⁻³"});
  add_column(runs, rate, "lr", "learning rate", 1, false);
  add(PlacedChart::learning, std::move(rate));
  Chart norm = chart_of(runs, "grad-norm", "Gradient norm", "before clipping", {1, -3, ""});
  norm.logarithmic = true;
  add_column(runs, norm, "grad_norm", "gradient norm", 1, true);
  add(PlacedChart::learning, std::move(norm));

  Chart tokens = chart_of(runs, "tokens", "Throughput", "tokens per second", {1, 0, ""});
  add_column(runs, tokens, "tokens_per_s", "tokens per second", 1, true);
  add(PlacedChart::speed, std::move(tokens));
  Chart wait = chart_of(runs, "data-wait", "Waiting for data", "ms per step", {1e-3, 2, " ms"});
  wait.least_high = 1e-3;
  add_column(runs, wait, "data_wait", "waiting for data", 1, true);
  add(PlacedChart::speed, std::move(wait));

  if (runs.size() == 1) {
    add(PlacedChart::memory, memory(runs[0]), true);
  } else {
    double most = 0;
    for (const auto& run : runs)
      if (const auto* peaks = run.column("memory_step_peak_bytes")) most = std::max(most, largest(*peaks));
    Chart total = chart_of(runs, "memory", "Memory", "", bytes_format(most));
    total.unit = std::string(total.format.unit.substr(1)) + ", the most in use during a step";
    add_column(runs, total, "memory_step_peak_bytes", "in use at once", 1, false);
    add(PlacedChart::memory, std::move(total), true);
  }
  return out;
}

}  // namespace chorus::report
