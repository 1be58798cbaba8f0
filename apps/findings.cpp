#include <chorus/apps/findings.h>
#include <chorus/apps/histogram.h>

#include <algorithm>
#include <cstdio>

namespace chorus {

std::string findings_text(std::span<const Finding> findings, std::size_t most, const std::string& warning_label) {
  std::vector<std::pair<Severity, std::string>> kinds;
  for (const Finding& f : findings)
    if (std::ranges::find(kinds, std::pair(f.severity, f.kind)) == kinds.end()) kinds.emplace_back(f.severity, f.kind);
  std::string out;
  for (const auto& [severity, kind] : kinds) {
    std::string lines;
    std::size_t count = 0;
    for (const Finding& f : findings)
      if (f.severity == severity && f.kind == kind && (++count <= most || most == 0))
        lines += "  " + f.where + ": " + f.text + '\n';
    out += '\n' + (severity == Severity::error ? "error" : warning_label) + ": " + kind + " (" + std::to_string(count) + ")\n" +
           lines;
    if (most > 0 && count > most) out += "  and " + std::to_string(count - most) + " more (--limit 0 shows all)\n";
  }
  return out;
}

std::string totals_text(const std::string& title, const std::map<std::string, CorpusTotals>& totals) {
  std::size_t widest = columns(title);
  for (const auto& [name, t] : totals) widest = std::max({widest, columns(name), std::size_t{4}});
  const auto padded = [&](const std::string& name) { return name + std::string(widest - columns(name), ' '); };
  std::string out = padded(title) + "  entries    hours  characters  characters/s  speakers\n";
  for (const auto& [name, t] : totals) {
    char line[128];
    std::snprintf(line, sizeof line, " %8lld %8.3f %11lld %13.1f %9zu\n", static_cast<long long>(t.entries), t.seconds / 3600,
                  static_cast<long long>(t.characters), t.seconds > 0 ? static_cast<double>(t.characters) / t.seconds : 0.0,
                  t.speakers.size());
    out += padded(name.empty() ? "none" : name) + line;
  }
  return out;
}

}  // namespace chorus
