// The rules by which Perfetto and Chrome read a JSON trace.
#pragma once
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace chorus::testing {

/// What is wrong with a trace; empty if nothing. Complete events (X) of one track, which is a process and a thread, nest or
/// follow each other, but never overlap in part; begins (B) and ends (E) of a track pair up, by name where the end has one.
inline std::vector<std::string> check_trace(const nlohmann::json& trace) {
  struct Event {
    std::string name;
    std::int64_t begin, end;  // ns: sums of decimal fractions in doubles would not compare
  };
  std::vector<std::string> wrong;
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) return {"no traceEvents"};
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<Event>> complete;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<std::string>> open;
  const auto nanoseconds = [](const nlohmann::json& us) {
    return static_cast<std::int64_t>(std::llround(us.get<double>() * 1e3));
  };
  for (const auto& event : trace["traceEvents"]) {
    const std::string phase = event.value("ph", "");
    const std::string name = event.value("name", "");
    if (phase == "M") continue;
    if (!event.contains("pid") || !event.contains("tid") || !event.contains("ts")) {
      wrong.push_back(name + ": no pid, tid or ts");
      continue;
    }
    const std::pair<std::int64_t, std::int64_t> track{event["pid"], event["tid"]};
    if (phase == "X") {
      if (!event.contains("dur") || event["dur"] < 0) {
        wrong.push_back(name + ": no duration");
        continue;
      }
      const std::int64_t begin = nanoseconds(event["ts"]);
      complete[track].push_back({name, begin, begin + nanoseconds(event["dur"])});
    } else if (phase == "B") {
      open[track].push_back(name);
    } else if (phase == "E") {
      auto& stack = open[track];
      if (stack.empty() || (!name.empty() && stack.back() != name))
        wrong.push_back("the end of '" + name + "' has no beginning");
      else
        stack.pop_back();
    } else {
      wrong.push_back("phase '" + phase + "'");
    }
  }
  for (const auto& [track, stack] : open)
    for (const auto& name : stack) wrong.push_back("'" + name + "' begins but doesn't end");
  for (auto& [track, events] : complete) {
    std::ranges::stable_sort(events, [](const Event& a, const Event& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;  // the outer one of a pair first
    });
    std::vector<Event> stack;
    for (const auto& event : events) {
      while (!stack.empty() && stack.back().end <= event.begin) stack.pop_back();
      if (!stack.empty() && event.end > stack.back().end)
        wrong.push_back("'" + event.name + "' at " + std::to_string(event.begin) + " ns begins inside '" + stack.back().name +
                        "' and ends after it");
      stack.push_back(event);
    }
  }
  return wrong;
}

}  // namespace chorus::testing
