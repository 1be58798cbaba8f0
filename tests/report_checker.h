// Holds every figure of a report against metrics.jsonl, read here anew: what its key says must be the value it carries, and
// what is shown must be that value, rounded.
#pragma once
#include <chorus/core/text.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

namespace chorus::testing {

using Json = nlohmann::json;

inline std::vector<Json> json_lines(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<Json> out;
  for (std::string line; std::getline(in, line);)
    if (auto json = Json::parse(line, nullptr, false); json.is_object()) out.push_back(std::move(json));
  return out;
}

/// A run as its lines say, by the rule of run_record.h.
struct Truth {
  std::vector<Json> steps, intervals, evaluations, transcripts;
  std::map<std::string, double> dropped;

  explicit Truth(const std::filesystem::path& folder) {
    const auto forget = [](std::vector<Json>& lines, std::int64_t step) {
      std::erase_if(lines, [&](const Json& line) { return line["step"] > step; });
    };
    for (const auto& line : json_lines(folder / "metrics.jsonl")) {
      const std::string event = line["event"];
      if (event == "start")
        for (auto* lines : {&steps, &intervals, &evaluations}) forget(*lines, line["step"]);
      if (event == "step") steps.push_back(line);
      if (event == "interval") intervals.push_back(line);
      if (event == "evaluation") evaluations.push_back(line);
      for (const auto& [key, value] : line.items())
        if (key.starts_with("dropped.")) dropped[key.substr(8)] = value;
    }
    for (const auto& line : json_lines(folder / "transcripts.jsonl"))
      if (line["event"] == "transcript") transcripts.push_back(line);
  }

  static double sum_of(const std::vector<Json>& lines, const std::string& key) {
    double sum = 0;
    for (const auto& line : lines) sum += line.value(key, 0.0);
    return sum;
  }

  std::vector<double> values(const std::string& column, std::int64_t first, std::int64_t last) const {
    std::vector<double> out;
    if (column.starts_with("evaluation.")) {
      for (const auto& line : evaluations)
        if (line["step"] >= first && line["step"] <= last) out.assign(1, line[column.substr(11)]);
      return out;
    }
    auto [cached, is_new] = columns_.try_emplace(column);
    if (is_new)
      for (const auto& line : steps)
        if (line.contains(column) && line[column].is_number()) cached->second.push_back({line["step"], line[column]});
    for (auto it = std::ranges::lower_bound(cached->second, first, {}, &std::pair<std::int64_t, double>::first);
         it != cached->second.end() && it->first <= last; ++it)
      out.push_back(it->second);
    return out;
  }

  double value(const std::string& key) const {
    std::smatch m;
    static const std::regex statistic("(mean|median|sum|min|max|share):([^:]+):(\\d+)-(\\d+)");
    if (std::regex_match(key, m, statistic)) {
      const std::string what = m[1];
      auto v = values(m[2], std::stoll(m[3]), std::stoll(m[4]));
      if (v.empty()) return std::nan("");
      double sum = 0;
      for (const double x : v) sum += x;
      if (what == "sum") return sum;
      if (what == "mean") return sum / static_cast<double>(v.size());
      if (what == "share") {
        double seconds = 0;
        for (const double x : values("seconds", std::stoll(m[3]), std::stoll(m[4]))) seconds += x;
        return sum / seconds;
      }
      std::sort(v.begin(), v.end());
      if (what == "min") return v.front();
      if (what == "max") return v.back();
      return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
    }
    const std::string name = key.substr(key.find(':') + 1);
    const double seconds = sum_of(intervals, "op_seconds." + name);
    if (key.starts_with("op_seconds:")) return seconds / sum_of(intervals, "steps");
    if (key.starts_with("op_share:")) return seconds / sum_of(intervals, "seconds");
    if (key.starts_with("op_rate:")) return sum_of(intervals, "op_flops." + name) / seconds;
    if (key.starts_with("dropped:")) return dropped.at(name);
    if (key == "steps:last") return steps.back()["step"];
    if (std::regex_match(key, m, std::regex("errors:(\\d+):(.*):(llm|ctc):(characters|reference)"))) {
      for (const auto& line : transcripts) {
        if (line["step"] != std::stoll(m[1]) || line["recording"] != m[2].str()) continue;
        const std::string reference = line["reference"], text = line[m[3].str()];
        return static_cast<double>(m[4] == "reference" ? reference.size() : edit_distance(reference, text));
      }
    }
    ADD_FAILURE() << "no rule for the key " << key;
    return std::nan("");
  }

 private:
  mutable std::map<std::string, std::vector<std::pair<std::int64_t, double>>>
      columns_;  ///< step and value, as they are asked for
};

/// What a text such as "1,234.5 %", "3.1e-05" or "1 h 02 min" says, and half a unit of its last digit.
inline std::pair<double, double> shown_number(std::string text) {
  std::erase(text, ',');
  std::smatch m;
  const auto number = [&](int i) { return std::stod(m[i]); };
  if (std::regex_match(text, m, std::regex("(\\d+) h (\\d+) min"))) return {3600 * number(1) + 60 * number(2), 30};
  if (std::regex_match(text, m, std::regex("(\\d+) min (\\d+) s"))) return {60 * number(1) + number(2), 0.5};
  if (std::regex_match(text, m, std::regex("([\\d.]+) ms"))) return {1e-3 * number(1), 0.5e-4};
  if (!std::regex_search(text, m, std::regex("^(-?\\d+)(?:\\.(\\d+))?(?:e([-+]\\d+))?"))) return {std::nan(""), 0};
  const int exponent = m[3].matched ? std::stoi(m[3]) : 0;
  return {std::stod(m[0]), 0.5 * std::pow(10.0, exponent - static_cast<int>(m[2].length()))};
}

/// Checks all figures of a page about these runs; returns how many there are.
inline int check_figures(const std::string& html, const std::vector<std::filesystem::path>& folders) {
  std::vector<Truth> truths(folders.begin(), folders.end());
  const std::regex element("<data value=\"([^\"]*)\" data-key=\"([^\"]*)\" data-scale=\"([^\"]*)\">([^<]*)</data>");
  int found = 0;
  for (std::sregex_iterator it(html.begin(), html.end(), element), end; it != end; ++it, ++found) {
    std::string key = (*it)[2];
    std::size_t run = 0;
    if (folders.size() > 1) {
      run = std::stoul(key);
      key = key.substr(key.find('/') + 1);
    }
    const double value = std::stod((*it)[1]), scale = std::stod((*it)[3]), expected = truths.at(run).value(key);
    EXPECT_TRUE(value == expected || std::abs(value - expected) <= 1e-12 * std::abs(expected) ||
                (std::isnan(value) && std::isnan(expected)))
        << key << ": the page has " << value << ", the lines " << expected;
    const std::string text = (*it)[4];
    if (std::isnan(value)) {
      EXPECT_EQ(text, "–") << key;
      continue;
    }
    const bool time = key.find(":seconds:") != key.npos && scale == 1;
    auto [shown, half] = shown_number(time || scale != 1e-3 ? text : text.substr(0, text.find(' ')));
    EXPECT_NEAR(shown * (time ? 1 : scale), value, 1.0001 * half * (time ? 1 : scale) + 1e-12 * std::abs(value))
        << key << " is shown as " << text;
  }
  std::size_t all = 0;
  for (std::size_t at = 0; (at = html.find("<data ", at)) != html.npos; ++at) ++all;
  EXPECT_EQ(static_cast<std::size_t>(found), all) << "figures of another form";
  return found;
}

/// The curves that the page's script reads: every bucket against the steps it stands for. Returns the number of buckets.
inline int check_curves(const std::string& html, const std::vector<std::filesystem::path>& folders) {
  std::vector<Truth> truths(folders.begin(), folders.end());
  const std::string open = "<script type=\"application/json\" id=\"curves\">";
  const std::size_t begin = html.find(open) + open.size();
  const Json charts = Json::parse(html.substr(begin, html.find("</script>", begin) - begin));
  int checked = 0;
  for (const auto& [id, chart] : charts.items()) {
    for (const auto& curve : chart["curves"]) {
      std::string column = curve["key"];
      std::size_t run = 0;
      if (folders.size() > 1) {
        run = std::stoul(column);
        column = column.substr(column.find('/') + 1);
      }
      for (std::size_t i = 0; i < curve["last"].size(); ++i, ++checked) {
        if (curve["mean"][i].is_null()) continue;
        const std::int64_t last = curve["last"][i],
                           first = curve.contains("first") ? curve["first"][i].get<std::int64_t>() : last;
        const std::string range = ':' + column + ':' + std::to_string(first) + '-' + std::to_string(last);
        const auto check = [&](const char* what, const Json& value) {
          const double expected = truths.at(run).value(what + range);
          EXPECT_NEAR(value.get<double>(), expected, 1e-12 * std::abs(expected)) << id << ": " << what << range;
        };
        check("mean", curve["mean"][i]);
        if (curve.contains("min")) {
          check("min", curve["min"][i]);
          check("max", curve["max"][i]);
        }
      }
    }
  }
  return checked;
}

/// Every element that is opened is closed, in order.
inline void check_tags(const std::string& html) {
  std::vector<std::string> open;
  const std::regex tag("<(/?)([a-zA-Z][a-zA-Z0-9]*)([^>]*)>");
  std::string text = html;
  for (const std::string name : {"script", "style"})  // their contents aren't markup
    for (std::size_t at = 0; (at = text.find('<' + name, at)) != text.npos;) {
      const std::size_t begin = text.find('>', at) + 1, end = text.find("</" + name, begin);
      ASSERT_NE(end, text.npos) << name;
      text.erase(begin, end - begin);
      at = begin;
    }
  for (std::sregex_iterator it(text.begin(), text.end(), tag), end; it != end; ++it) {
    const std::string name = (*it)[2];
    const std::string rest = (*it)[3];
    if (name == "meta" || name == "path" || rest.ends_with('/')) continue;
    if ((*it)[1].length() == 0) {
      open.push_back(name);
      continue;
    }
    ASSERT_FALSE(open.empty()) << "</" << name << "> without a beginning, at " << it->position();
    ASSERT_EQ(open.back(), name) << "at " << text.substr(static_cast<std::size_t>(it->position()), 120);
    open.pop_back();
  }
  EXPECT_TRUE(open.empty()) << open.back();
}

}  // namespace chorus::testing
