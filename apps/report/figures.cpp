// What sums up a run.
#include <chorus/apps/report/sections.h>

#include <algorithm>
#include <cmath>

namespace chorus::report {
namespace {

constexpr Format percent{0.01, 1, " %"};

/// A statistic over the newest `most` steps (all by default) with its key.
struct Stat {
  const Run& run;
  std::string prefix;
  std::size_t most = SIZE_MAX;

  std::span<const double> values(std::string_view column) const {
    const auto* all = run.column(column);
    if (!all) return {};
    return std::span(*all).last(std::min(most, all->size()));
  }
  std::string key(std::string_view name, std::string_view column) const {
    const std::size_t n = std::min(most, run.steps.size());
    return prefix + std::string(name) + ':' + std::string(column) + ':' + std::to_string(run.steps[run.steps.size() - n]) +
           '-' + std::to_string(run.steps.back());
  }
};

double value_of(const Record* record, const std::string& key) {
  if (!record) return std::nan("");
  const auto found = record->values.find(key);
  return found == record->values.end() ? std::nan("") : found->second;
}

}  // namespace

std::string key_prefix(Runs runs, std::size_t run) { return runs.size() > 1 ? std::to_string(run) + '/' : ""; }

std::string all_steps(const Run& run) { return std::to_string(run.steps.front()) + '-' + std::to_string(run.steps.back()); }

bool trains_decoder(const Run& run, std::string_view phase) {
  const auto* losses = run.column("llm_loss");
  if (!losses) return false;
  for (const auto& span : run.phases) {
    if (span.name != phase) continue;
    for (std::size_t i = 0; i < run.steps.size(); ++i)
      if (run.steps[i] >= span.first && run.steps[i] <= span.last && losses->at(i) > 0) return true;
  }
  return false;
}

std::string main_part(const Run& run) {
  const Record* last = run.last_evaluation();
  if (!last) return "";
  const bool decoder = trains_decoder(run, last->phase);
  if (decoder && std::isfinite(value_of(last, "llm_cer"))) return "llm";
  if (std::isfinite(value_of(last, "ctc_cer"))) return "ctc";
  return decoder && std::isfinite(value_of(last, "llm_perplexity")) ? "text" : "";
}

std::vector<Figure> headline(Runs runs, std::size_t number) {
  const Run& run = runs[number];
  const std::string prefix = key_prefix(runs, number);
  const Stat all{run, prefix}, newest{run, prefix, 100};
  std::vector<Figure> out;
  const auto add = [&](std::string label, std::string text, std::string hint) {
    out.push_back({std::move(label), std::move(text), std::move(hint)});
  };
  const Record* last = run.last_evaluation();
  const std::string part = main_part(run);
  const std::string step = last ? decimal(static_cast<double>(last->step), 0) : "";
  const auto evaluation = [&](const std::string& key, const Format& format) {
    if (part.empty()) return std::string("–");
    const std::string at = std::to_string(last->step);
    return figure(prefix + "mean:evaluation." + key + ':' + at + '-' + at, value_of(last, key), format);
  };
  if (part == "text") {
    add("Held-out perplexity", evaluation("llm_perplexity", {1, 2, ""}), "per token, after step " + step);
    add("Bits per byte", evaluation("bits_per_byte", {1, 3, ""}), "held out");
    add("Held-out loss", evaluation("llm_loss", {1, 3, ""}), "nats per token");
  } else {
    const std::string who = part.empty() ? (last ? "no part to evaluate" : "no evaluation yet")
                                         : (part == "llm" ? "decoder, after step " : "CTC head, after step ") + step;
    add("Held-out CER", evaluation(part + "_cer", percent), who);
    add("Held-out WER", evaluation(part + "_wer", percent), who);
    add("Held-out loss", evaluation(part + "_loss", {1, 3, ""}), part.empty() ? who : "nats per label");
  }
  const std::size_t few = std::min<std::size_t>(100, run.steps.size());
  add("Training loss", figure(newest.key("mean", "loss"), mean(newest.values("loss")), {1, 3, ""}),
      "mean of the last " + std::to_string(few) + (few == 1 ? " step" : " steps"));
  add("Steps", figure(prefix + "steps:last", static_cast<double>(run.steps.back()), {1, 0, ""}),
      run.total_steps > 0 ? "of " + decimal(static_cast<double>(run.total_steps), 0) : "");
  const auto seconds = all.values("seconds");
  add("Time in steps", duration_figure(all.key("sum", "seconds"), sum(seconds)),
      duration_figure(all.key("median", "seconds"), median(seconds)) + " a step (median)");
  add("Tokens per second", figure(all.key("median", "tokens_per_s"), median(all.values("tokens_per_s")), {1, 0, ""}),
      "median; encoder rows and text");
  add("Of matrix peak", figure(all.key("median", "peak_percent"), median(all.values("peak_percent")), {1, 1, " %"}),
      "median; " + figure(all.key("median", "gflops"), median(all.values("gflops")), {1, 0, " GFLOP/s"}));
  const double peak = largest(all.values("memory_peak_bytes"));
  add("Peak memory", figure(all.key("max", "memory_peak_bytes"), peak, bytes_format(peak)), "of tensors");
  add("Waiting for data",
      figure(prefix + "share:data_wait:" + all_steps(run), sum(all.values("data_wait")) / sum(seconds), percent),
      "of the time in steps");
  return out;
}

}  // namespace chorus::report
