#include <chorus/apps/report/assets.h>
#include <chorus/apps/report/config_view.h>
#include <chorus/apps/report/page.h>
#include <chorus/apps/report/sections.h>

#include <algorithm>
#include <utility>

namespace chorus::report {
namespace {

std::string thousands(std::int64_t n) { return decimal(static_cast<double>(n), 0); }

/// "Finished after 1,000 steps", "Paused after ...", "Not finished: ...".
std::string state(const Run& run) {
  const std::string steps =
      thousands(run.steps.back()) + (run.total_steps > 0 ? " of " + thousands(run.total_steps) : "") + " steps";
  if (run.outcome == "finished") return "<b>Finished</b> after " + steps;
  if (run.outcome == "stopped") return "<b>Stopped by a signal</b> after " + steps;
  if (run.outcome == "paused") return "<b>Paused</b> after " + steps;
  return "<b>Not finished</b>: " + steps + ", last line written " + date(run.written);
}

std::string about(const Run& run) {
  std::string out = state(run);
  if (run.parameters > 0) out += " · " + decimal(static_cast<double>(run.parameters) / 1e6, 2) + " million parameters";
  if (run.ranks > 1) out += " · " + std::to_string(run.ranks) + " ranks: " + escape(run.layout);
  if (run.phases.size() > 1) {
    out += " · phases ";
    for (std::size_t i = 0; i < run.phases.size(); ++i) out += (i ? ", " : "") + escape(run.phases[i].name);
  }
  if (run.started > 0) out += " · started " + date(run.started);
  if (run.invocations > 1) out += " · " + std::to_string(run.invocations) + " invocations";
  return out;
}

std::string remarks(Runs runs) {
  std::string out;
  for (const auto& run : runs) {
    const std::size_t most = 5;
    for (std::size_t i = 0; i < std::min(most, run.remarks.size()); ++i)
      out += "<li>" + (runs.size() > 1 ? escape(run.name) + ": " : "") + escape(run.remarks[i]) + "</li>";
    if (run.remarks.size() > most) out += "<li>and " + std::to_string(run.remarks.size() - most) + " lines more</li>";
  }
  return out.empty() ? "" : "<aside class=\"remarks\"><ul>" + out + "</ul></aside>";
}

std::string cards(Runs runs) {
  std::string out = "<dl class=\"cards\">";
  for (const auto& f : headline(runs, 0))
    out += "<div><dt>" + f.label + "</dt><dd>" + f.text + "</dd><dd>" + f.hint + "</dd></div>";
  return out + "</dl>";
}

std::string comparison(Runs runs) {
  std::vector<std::vector<Figure>> columns;
  for (std::size_t r = 0; r < runs.size(); ++r) columns.push_back(headline(runs, r));
  std::string out =
      "<h2 id=\"figures\">Final figures</h2><div class=\"sheet scroll\"><table class=\"full\"><thead><tr><th "
      "scope=\"col\"></th>";
  for (std::size_t r = 0; r < runs.size(); ++r)
    out += "<th scope=\"col\" class=\"n\"><i class=\"key c" + std::to_string(r % 8 + 1) + "\"></i> " + escape(runs[r].name) +
           "</th>";
  out += "</tr></thead><tbody>";
  for (std::size_t i = 0; i < columns[0].size(); ++i) {
    out += "<tr><td>" + columns[0][i].label + "</td>";
    for (const auto& column : columns) out += "<td class=\"n\">" + column[i].text + "</td>";
    out += "</tr>";
  }
  return out + "</tbody></table></div>";
}

struct Section {
  std::string id, title, lead, body;
};

/// `more` follows the first chart.
std::string chart_grid(const std::vector<PlacedChart>& all, PlacedChart::Group group, std::string more = "") {
  std::string out;
  for (const auto& placed : all) {
    if (placed.group != group) continue;
    std::string html = draw(placed.chart);
    if (placed.wide && !html.empty()) html.replace(html.find("\"chart\""), 7, "\"chart wide\"");
    out += html + std::exchange(more, "");
  }
  return out.empty() ? "" : "<div class=\"grid\">" + out + "</div>";
}

std::string transcript_lead(const Run& run) {
  if (run.transcripts.empty()) return "";
  const auto step = run.transcripts[0].step;
  double recordings = static_cast<double>(run.transcripts.size());
  for (const auto& evaluation : run.evaluations)
    if (evaluation.step == step)
      if (const auto found = evaluation.values.find("recordings"); found != evaluation.values.end()) recordings = found->second;
  return "After step " + thousands(step) + ", " + std::to_string(run.transcripts.size()) + " of " + decimal(recordings, 0) +
         " recordings, evenly chosen. <del>Missing</del> words and letters are struck out, <ins>added</ins> ones are "
         "underlined.";
}

std::string configuration(Runs runs) {
  std::vector<std::vector<Setting>> settings;
  std::vector<std::string> names;
  for (const auto& run : runs) {
    settings.push_back(read_settings(run.config));
    names.push_back(run.name);
  }
  if (std::ranges::all_of(settings, [](const auto& s) { return s.empty(); })) return "";
  return "<div class=\"sheet\">" + (runs.size() == 1 ? draw_settings(settings[0]) : draw_differences(settings, names)) +
         "</div>";
}

std::string curve_data(const std::vector<PlacedChart>& all) {
  std::string out = "{";
  for (const auto& placed : all) out += (out.size() > 1 ? ",\n\"" : "\"") + placed.chart.id + "\":" + data_of(placed.chart);
  return out + "}";
}

std::string title(Runs runs) {
  std::string out;
  for (const auto& run : runs) out += (out.empty() ? "" : ", ") + run.name;
  return out;
}

}  // namespace

std::string page(std::span<const Run> runs) {
  const auto all = charts(runs);
  const bool one = runs.size() == 1;
  std::vector<Section> sections{
      {"learning", "Learning", one ? "" : "One colour for each run, throughout the page.",
       chart_grid(all, PlacedChart::learning, evaluations(runs))},
      {"speed", "Speed", "", chart_grid(all, PlacedChart::speed)},
      {"operations", "Time by operation",
       one ? "Forward and backward pass together; nested operations are counted once, so that the shares add up to the time in "
             "steps."
           : "Nested operations are counted once.",
       operations(runs)},
      {"memory", "Memory", "", chart_grid(all, PlacedChart::memory)},
      {"transcripts", "Held-out transcripts",
       one ? transcript_lead(runs[0])
           : "<del>Missing</del> words and letters are struck out, <ins>added</ins> ones are underlined.",
       transcripts(runs)},
      {"dropped", "Samples left out", "", dropped(runs)},
      {"configuration", one ? "Configuration" : "Differences of configuration", "", configuration(runs)}};
  std::erase_if(sections, [](const Section& section) { return section.body.empty(); });

  std::string out = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + escape(title(runs)) +
                    " – Chorus report</title><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><style>\n";
  out += style;
  out += "</style></head><body><main><header><p class=\"eyebrow\">Chorus, report of ";
  out += one ? "a training run" : std::to_string(runs.size()) + " training runs";
  out += "</p><h1>" + escape(title(runs)) + "</h1>";
  for (std::size_t r = 0; r < runs.size(); ++r)
    out += "<p class=\"state\">" +
           (one ? "" : "<i class=\"key c" + std::to_string(r % 8 + 1) + "\"></i> " + escape(runs[r].name) + ": ") +
           about(runs[r]) + "</p>";
  out += "<nav aria-label=\"Sections\">";
  for (const auto& section : sections) out += "<a href=\"#" + section.id + "\">" + section.title + "</a>";
  out += "</nav>" + remarks(runs) + "</header>\n";
  out += one ? cards(runs) : comparison(runs);
  for (const auto& section : sections)
    out += "\n<section><h2 id=\"" + section.id + "\">" + section.title + "</h2>" +
           (section.lead.empty() ? "" : "<p class=\"lead\">" + section.lead + "</p>") + section.body + "</section>";
  out +=
      "\n<footer>Every figure is one of metrics.jsonl or a sum, mean or median of its lines; the page's source says which, "
      "with all "
      "digits. Curves of more steps than a screen has room for show means, with the range between minimum and maximum "
      "shaded.</footer>"
      "</main>\n<script type=\"application/json\" id=\"curves\">" +
      curve_data(all) + "</script>\n<script>\n";
  out += script;
  return out + "</script></body></html>\n";
}

}  // namespace chorus::report
