#include <chorus/apps/histogram.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace chorus {

std::size_t columns(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string histogram(const std::vector<Bar>& bars, int width) {
  std::int64_t most = 1;
  std::size_t widest = 0;
  for (const Bar& bar : bars) {
    most = std::max(most, bar.count);
    widest = std::max(widest, columns(bar.label));
  }
  std::string out;
  for (const Bar& bar : bars) {
    const double full = static_cast<double>(bar.count) * width / static_cast<double>(most);
    auto eighths = static_cast<int>(full * 8 + 0.5);
    if (bar.count > 0) eighths = std::max(eighths, 1);
    out += "  " + std::string(widest - columns(bar.label), ' ') + bar.label;
    char count[32];
    std::snprintf(count, sizeof count, " %8lld ", static_cast<long long>(bar.count));
    out += count;
    for (; eighths >= 8; eighths -= 8) out += "\u2588";
    constexpr std::array<const char*, 8> parts{"", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589"};
    out += parts[static_cast<std::size_t>(eighths)];
    out += '\n';
  }
  return out;
}

std::vector<Bar> duration_bars(const std::vector<double>& seconds) {
  constexpr std::array<double, 13> limits{0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 40, 60, 3600};
  std::vector<Bar> bars;
  for (std::size_t i = 0; i <= limits.size(); ++i) {
    char label[32];
    if (i < limits.size())
      std::snprintf(label, sizeof label, "under %g s", limits[i]);
    else
      std::snprintf(label, sizeof label, "%g s or more", limits.back());
    bars.push_back({label, 0});
  }
  for (const double s : seconds) ++bars[std::upper_bound(limits.begin(), limits.end(), s) - limits.begin()].count;
  while (bars.size() > 1 && bars.back().count == 0) bars.pop_back();
  while (bars.size() > 1 && bars.front().count == 0) bars.erase(bars.begin());
  return bars;
}

}  // namespace chorus
