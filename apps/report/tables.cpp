// Time by operation, transcripts beside their references, and what was left out.
#include <chorus/apps/report/diff.h>
#include <chorus/apps/report/sections.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace chorus::report {
namespace {

struct Operation {
  std::string name;
  double seconds = 0, flops = 0;  ///< over all lines "interval"
};

struct Operations {
  std::vector<Operation> all;  ///< longest first
  double steps = 0, seconds = 0;
};

Operations operations_of(const Run& run) {
  constexpr std::string_view seconds = "op_seconds.", flops = "op_flops.";
  Operations out;
  std::map<std::string, Operation> by_name;
  const auto number = [](const Record& record, const char* key) {
    const auto found = record.values.find(key);
    return found == record.values.end() ? 0 : found->second;
  };
  for (const auto& interval : run.intervals) {
    out.steps += number(interval, "steps");
    out.seconds += number(interval, "seconds");
    for (const auto& [key, value] : interval.values) {
      if (key.starts_with(seconds)) by_name[key.substr(seconds.size())].seconds += value;
      if (key.starts_with(flops)) by_name[key.substr(flops.size())].flops += value;
    }
  }
  for (auto& [name, operation] : by_name) {
    operation.name = name;
    out.all.push_back(operation);
  }
  std::ranges::stable_sort(out.all, std::greater(), &Operation::seconds);
  return out;
}

/// Two spans of a step are no operations.
std::string shown_name(const std::string& name) {
  return name == "step" ? "outside of operations" : name == "data" ? "fetching data" : name;
}

constexpr std::size_t most_operations = 14;

std::string operations_of_one(const Run& run) {
  const Operations ops = operations_of(run);
  if (ops.all.empty() || !(ops.seconds > 0)) return "";
  std::string out =
      "<div class=\"sheet scroll\"><table class=\"full bars\"><thead><tr><th scope=\"col\">operation</th><th scope=\"col\">"
      "<span class=\"away\">bar of the share</span></th><th scope=\"col\" class=\"n\">share</th><th scope=\"col\" "
      "class=\"n\">ms per step</th><th scope=\"col\" class=\"n\">GFLOP/s</th></tr></thead><tbody>";
  const auto row = [&](const std::string& name, const std::string& key, double seconds, double flops, bool rest) {
    out += "<tr><td>" + escape(name) + "</td><td><span class=\"bar" + (rest ? " rest" : "") +
           "\" style=\"width:" + decimal(100 * seconds / ops.all[0].seconds, 1) + "%\"></span></td><td class=\"n\">" +
           (rest ? formatted(seconds / ops.seconds, {0.01, 1, " %"})
                 : figure("op_share:" + key, seconds / ops.seconds, {0.01, 1, " %"})) +
           "</td><td class=\"n\">" +
           (rest ? formatted(seconds / ops.steps, {1e-3, 2, ""})
                 : figure("op_seconds:" + key, seconds / ops.steps, {1e-3, 2, ""})) +
           "</td><td class=\"n\">" + (flops > 0 ? figure("op_rate:" + key, flops / seconds, {1e9, -3, ""}) : "") + "</td></tr>";
  };
  Operation others;
  for (std::size_t i = 0; i < ops.all.size(); ++i) {
    if (i < most_operations)
      row(shown_name(ops.all[i].name), ops.all[i].name, ops.all[i].seconds, ops.all[i].flops, false);
    else
      others.seconds += ops.all[i].seconds;
  }
  if (ops.all.size() > most_operations)
    row(std::to_string(ops.all.size() - most_operations) + " others", "", others.seconds, 0, true);
  return out + "</tbody></table></div>";
}

std::string operations_of_several(Runs runs) {
  std::vector<std::map<std::string, double>> per_step(runs.size());
  std::map<std::string, double> most;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Operations ops = operations_of(runs[r]);
    for (const auto& op : ops.all) {
      per_step[r][op.name] = op.seconds / ops.steps;
      most[op.name] = std::max(most[op.name], op.seconds / ops.steps);
    }
  }
  std::vector<std::pair<std::string, double>> order(most.begin(), most.end());
  std::ranges::stable_sort(order, std::greater(), &std::pair<std::string, double>::second);
  if (order.empty()) return "";
  if (order.size() > most_operations) order.resize(most_operations);
  std::string out = "<div class=\"sheet scroll\"><table class=\"full\"><thead><tr><th scope=\"col\">ms per step</th>";
  for (const auto& run : runs) out += "<th scope=\"col\" class=\"n\">" + escape(run.name) + "</th>";
  out += "</tr></thead><tbody>";
  for (const auto& [name, seconds] : order) {
    out += "<tr><td>" + escape(shown_name(name)) + "</td>";
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const auto found = per_step[r].find(name);
      out += "<td class=\"n\">" +
             (found == per_step[r].end() ? "–"
                                         : figure(key_prefix(runs, r) + "op_seconds:" + name, found->second, {1e-3, 2, ""})) +
             "</td>";
    }
    out += "</tr>";
  }
  return out + "</tbody></table></div>";
}

std::string marked(std::string_view reference, std::string_view transcript) {
  std::string out;
  for (const auto& piece : difference(reference, transcript)) {
    const std::string text = escape(piece.text);
    out += piece.edit == Edit::equal     ? text
           : piece.edit == Edit::missing ? "<del>" + text + "</del>"
                                         : "<ins>" + text + "</ins>";
  }
  return out.empty() ? "<span class=\"none\">nothing</span>" : out;
}

/// One line of a recording: who says what.
struct Line {
  std::string who, text, key;
};

std::string draw_recording(const std::string& name, const std::string& reference, const std::vector<Line>& lines) {
  const auto count = [](const Line& line, const char* what, std::int64_t n) {
    return figure(line.key + what, static_cast<double>(n), {});
  };
  std::string rows;
  for (const auto& line : lines)
    rows += "<dt>" + escape(line.who) + "</dt><dd>" + marked(reference, line.text) + "</dd><dd class=\"n\">" +
            count(line, ":characters", count_errors(reference, line.text).characters) +
            "<span class=\"away\"> characters</span> wrong</dd>";
  std::string length;
  if (!lines.empty())
    length = count(lines[0], ":reference", count_errors(reference, lines[0].text).reference_characters) + " characters";
  return "<li><div class=\"who\"><span>" + escape(name) + "</span></div><dl><dt>reference</dt><dd>" + escape(reference) +
         "</dd><dd class=\"n\">" + length + "</dd>" + rows + "</dl></li>";
}

}  // namespace

std::string evaluations(Runs runs) {
  if (evaluated_repeatedly(runs)) return "";
  std::string rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Record* last = runs[r].last_evaluation();
    if (!last) continue;
    for (const std::string part : {"llm", "ctc"}) {
      const auto cell = [&](const std::string& name, const Format& format) {
        const auto found = last->values.find(part + name);
        if (found == last->values.end() || !std::isfinite(found->second)) return std::string("<td class=\"n\">–</td>");
        const std::string step = std::to_string(last->step);
        return "<td class=\"n\">" +
               figure(key_prefix(runs, r) + "mean:evaluation." + part + name + ':' + step + '-' + step, found->second, format) +
               "</td>";
      };
      const auto loss = last->values.find(part + "_loss");
      if (loss == last->values.end() || loss->second == 0 || (part == "llm" && !trains_decoder(runs[r], last->phase))) continue;
      rows += "<tr><td>" + (runs.size() > 1 ? escape(runs[r].name) + ", " : "") + (part == "llm" ? "decoder" : "CTC head") +
              ", after step " + decimal(static_cast<double>(last->step), 0) + "</td>" + cell("_cer", {0.01, 1, " %"}) +
              cell("_wer", {0.01, 1, " %"}) + cell("_loss", {1, 3, ""}) + "</tr>";
    }
  }
  if (rows.empty()) return "";
  return "<div class=\"sheet scroll wide\"><table class=\"full\"><thead><tr><th scope=\"col\">held out</th><th scope=\"col\" "
         "class=\"n\">characters wrong</th><th scope=\"col\" class=\"n\">words wrong</th><th scope=\"col\" class=\"n\">loss, "
         "nats "
         "per label</th></tr></thead><tbody>" +
         rows + "</tbody></table></div>";
}

std::string operations(Runs runs) { return runs.size() == 1 ? operations_of_one(runs[0]) : operations_of_several(runs); }

std::string transcripts(Runs runs) {
  // Recordings in the order of the first run that has any; with several runs one line for each.
  std::vector<std::string> order;
  std::size_t source = runs.size();
  std::map<std::string, std::string> references;
  std::map<std::string, std::vector<Line>> lines;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Run& run = runs[r];
    const std::string part = main_part(run);
    for (const auto& row : run.transcripts) {
      if (!references.contains(row.recording)) {
        if (source != r && source != runs.size()) continue;  // of another corpus
        source = r;
        order.push_back(row.recording);
        references[row.recording] = row.reference;
      }
      if (references[row.recording] != row.reference) continue;
      const std::string key = key_prefix(runs, r) + "errors:" + std::to_string(row.step) + ':' + row.recording + ':';
      const auto add = [&](const char* own, const char* who, const std::string& text) {
        lines[row.recording].push_back({runs.size() == 1 ? who : run.name, text, key + own});
      };
      if (row.has_llm && part == "llm") add("llm", "decoder", row.llm);
      if (row.has_ctc && (part == "ctc" || runs.size() == 1)) add("ctc", "CTC head", row.ctc);
    }
  }
  if (order.empty()) return "";
  constexpr std::size_t first = 12;
  std::string shown, more;
  for (std::size_t i = 0; i < order.size(); ++i)
    (i < first ? shown : more) += draw_recording(order[i], references[order[i]], lines[order[i]]);
  std::string out = "<div class=\"sheet\"><ul class=\"said\">" + shown + "</ul>";
  if (!more.empty())
    out += "<details><summary>" + std::to_string(order.size() - first) + " more recordings</summary><ul class=\"said\">" +
           more + "</ul></details>";
  return out + "</div>";
}

std::string dropped(Runs runs) {
  const std::map<std::string, std::string, std::less<>> words{{"too_short", "shorter than the shortest allowed"},
                                                              {"too_long", "longer than the longest allowed"},
                                                              {"empty_text", "without text"},
                                                              {"text_too_long", "more text than the sound can hold"},
                                                              {"failed", "failed to load"},
                                                              {"unknown_text", "too many characters that the tokenizer lacks"},
                                                              {"bad_lines", "unusable lines of the manifest"},
                                                              {"duplicates", "with the id of another"},
                                                              {"unreadable", "sound that can't be read"},
                                                              {"without_ctc", "kept for the decoder, too short for CTC"}};
  std::vector<std::string> reasons;
  bool any = false;
  for (const auto& run : runs) {
    for (const auto& [reason, count] : run.dropped) {
      if (std::ranges::find(reasons, reason) == reasons.end()) reasons.push_back(reason);
      any |= count > 0;
    }
  }
  if (reasons.empty()) return "";
  if (!any) return "<p>No sample was left out.</p>";
  std::string out = "<div class=\"sheet scroll\"><table><thead><tr><th scope=\"col\">reason</th>";
  for (const auto& run : runs)
    out += "<th scope=\"col\" class=\"n\">" + (runs.size() == 1 ? "samples" : escape(run.name)) + "</th>";
  out += "</tr></thead><tbody>";
  for (const auto& reason : reasons) {
    const auto found = words.find(reason);
    std::string text = found == words.end() ? reason : found->second;
    if (found == words.end()) std::ranges::replace(text, '_', ' ');
    out += "<tr><td>" + escape(text) + "</td>";
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const auto count = runs[r].dropped.find(reason);
      out += "<td class=\"n\">" +
             (count == runs[r].dropped.end() ? "–" : figure(key_prefix(runs, r) + "dropped:" + reason, count->second, {})) +
             "</td>";
    }
    out += "</tr>";
  }
  return out + "</tbody></table></div>";
}

}  // namespace chorus::report
