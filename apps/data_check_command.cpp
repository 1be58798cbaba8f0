#include <chorus/apps/commands.h>
#include <chorus/apps/findings.h>
#include <chorus/apps/histogram.h>
#include <chorus/core/cpu.h>
#include <chorus/io/check.h>
#include <chorus/io/unicode.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace chorus {
namespace {

const char* name_of(Severity severity) { return severity == Severity::error ? "error" : "warning"; }

std::string label_of(char32_t c) {
  if (c == U' ') return "space";
  if (!is_odd(c)) return to_utf8({&c, 1});
  char text[16];
  std::snprintf(text, sizeof text, "U+%04X", static_cast<unsigned>(c));
  return text;
}

void print_json(const CheckReport& report) {
  nlohmann::ordered_json out;
  out["errors"] = report.count(Severity::error);
  out["warnings"] = report.count(Severity::warning);
  const auto totals = [](const std::map<std::string, CorpusTotals>& all) {
    nlohmann::ordered_json list = nlohmann::ordered_json::object();
    for (const auto& [name, t] : all)
      list[name] = {
          {"entries", t.entries}, {"seconds", t.seconds}, {"characters", t.characters}, {"speakers", t.speakers.size()}};
    return list;
  };
  out["manifests"] = totals(report.manifests);
  out["languages"] = totals(report.languages);
  for (const auto& [rate, n] : report.sample_rates) out["sample_rates"][std::to_string(rate)] = n;
  for (const Bar& bar : duration_bars(report.durations)) out["durations"][bar.label] = bar.count;
  for (const auto& [c, n] : report.characters) out["characters"][to_utf8({&c, 1})] = n;
  out["findings"] = nlohmann::ordered_json::array();
  for (const Finding& f : report.findings)
    out["findings"].push_back({{"severity", name_of(f.severity)}, {"kind", f.kind}, {"where", f.where}, {"text", f.text}});
  std::printf("%s\n", out.dump(1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace

int run_data_check(const DataCheckOptions& options) {
  const CheckReport report = check_manifests(
      options.manifests, options.heldout,
      {.deep = options.deep, .threads = options.threads > 0 ? options.threads : compute_threads(), .tars = options.tars});
  const int status = report.count(Severity::error) > 0 ? 1 : 0;
  if (options.json) {
    print_json(report);
    return status;
  }
  std::printf("%s\n%s", totals_text("manifest", report.manifests).c_str(), totals_text("language", report.languages).c_str());
  std::printf("\ndurations\n%s", histogram(duration_bars(report.durations)).c_str());
  std::vector<Bar> characters;
  for (const auto& [c, n] : report.characters) characters.push_back({label_of(c), n});
  std::ranges::stable_sort(characters, [](const Bar& a, const Bar& b) { return a.count > b.count; });
  std::printf("\ncharacters (%zu)\n%s", characters.size(), histogram(characters).c_str());
  std::printf("%s", findings_text(report.findings, options.limit).c_str());
  std::printf("\n%lld errors, %lld warnings%s\n", static_cast<long long>(report.count(Severity::error)),
              static_cast<long long>(report.count(Severity::warning)),
              options.deep ? "" : " (headers only; --deep reads all samples)");
  return status;
}

}  // namespace chorus
