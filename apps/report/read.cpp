#include <chorus/apps/report/read.h>
#include <chorus/core/error.h>
#include <chorus/core/posix_file.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace chorus::report {
namespace {

using nlohmann::json;
constexpr double no_value = std::numeric_limits<double>::quiet_NaN();

/// Numbers, and the words that the lines have for what JSON can't say.
std::optional<double> number(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  if (text == "nan") return no_value;
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

Values numbers(const json& line) {
  Values values;
  for (const auto& [key, value] : line.items())
    if (const auto n = number(value)) values.emplace(key, *n);
  return values;
}

std::string text(const json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : std::string();
}

double value_or(const json& line, const char* key, double otherwise) {
  const auto found = line.find(key);
  return found == line.end() ? otherwise : number(*found).value_or(otherwise);
}

/// Calls `use` with each line that is an object and has an integral "step"; others become remarks.
void for_each_line(const std::filesystem::path& file, std::vector<std::string>& remarks,
                   const std::function<void(const json&, std::int64_t step)>& use) {
  const std::string content = read_file(file);
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = content.find('\n', begin);
    ++number;
    if (end == content.npos) {
      remarks.push_back(file.filename().string() + ", line " + std::to_string(number) +
                        " is cut off: the run is writing it, or was killed while it did");
      return;
    }
    const json line = json::parse(content.begin() + static_cast<std::ptrdiff_t>(begin),
                                  content.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    begin = end + 1;
    const auto step = line.is_object() ? line.find("step") : line.end();
    if (!line.is_object() || step == line.end() || !step->is_number_integer() || *step < 0)
      remarks.push_back(file.filename().string() + ", line " + std::to_string(number) +
                        " is left out: " + (line.is_object() ? "it has no step" : "it is no JSON object"));
    else
      use(line, step->get<std::int64_t>());
  }
}

class MetricsReader {
 public:
  explicit MetricsReader(Run& run) : run_(run) {}

  void use(const json& line, std::int64_t step) {
    const std::string event = text(line, "event");
    if (event == "start") {
      forget_after(step);
      if (run_.invocations++ == 0) run_.started = value_or(line, "time", 0);
      run_.total_steps = static_cast<std::int64_t>(value_or(line, "total_steps", 0));
      run_.parameters = static_cast<std::int64_t>(value_or(line, "parameters", 0));
      run_.ranks = static_cast<int>(value_or(line, "ranks", 1));
      run_.layout = text(line, "layout");
    } else if (event == "step") {
      // The line "start" may be among those that a full disk cost.
      if (!run_.steps.empty() && step <= run_.steps.back()) forget_after(step - 1);
      add_step(line, step);
    } else if (event == "interval") {
      run_.intervals.push_back({text(line, "phase"), step, numbers(line)});
    } else if (event == "evaluation") {
      run_.evaluations.push_back({text(line, "phase"), step, numbers(line)});
    } else if (event == "end") {
      run_.outcome = text(line, "outcome");
    }
    if (event == "interval" || event == "end") read_drops(line);
  }

 private:
  void forget_after(std::int64_t step) {
    run_.outcome.clear();
    while (!run_.steps.empty() && run_.steps.back() > step) run_.steps.pop_back();
    for (auto& [key, values] : run_.columns)
      if (values.size() > run_.steps.size()) values.resize(run_.steps.size());
    const auto later = [&](const Record& record) { return record.step > step; };
    std::erase_if(run_.intervals, later);
    std::erase_if(run_.evaluations, later);
    std::erase_if(run_.phases, [&](const PhaseSpan& phase) { return phase.first > step; });
    if (!run_.phases.empty()) run_.phases.back().last = std::min(run_.phases.back().last, step);
  }

  void add_step(const json& line, std::int64_t step) {
    const std::string phase = text(line, "phase");
    if (run_.phases.empty() || run_.phases.back().name != phase) run_.phases.push_back({phase, step, step});
    run_.phases.back().last = step;
    run_.steps.push_back(step);
    for (const auto& [key, value] : line.items()) {
      const auto n = number(value);
      if (!n || key == "step") continue;
      auto& column = run_.columns[key];
      column.resize(run_.steps.size() - 1, no_value);
      column.push_back(*n);
    }
  }

  void read_drops(const json& line) {
    constexpr std::string_view prefix = "dropped.";
    for (const auto& [key, value] : line.items())
      if (key.starts_with(prefix) && value.is_number()) run_.dropped[key.substr(prefix.size())] = value.get<double>();
  }

  Run& run_;
};

void read_transcripts(const std::filesystem::path& file, Run& run) {
  std::vector<TranscriptRow> rows;
  for_each_line(file, run.remarks, [&](const json& line, std::int64_t step) {
    if (text(line, "event") == "start") {
      std::erase_if(rows, [&](const TranscriptRow& row) { return row.step > step; });
      return;
    }
    // Only the newest evaluation is shown. One that was repeated, whose "start" got lost, begins again with its first
    // recording.
    const std::string recording = text(line, "recording");
    if (!rows.empty() && (rows.back().step != step || rows.front().recording == recording)) rows.clear();
    rows.push_back({step, recording, text(line, "reference"), text(line, "llm"), text(line, "ctc"), line.contains("llm"),
                    line.contains("ctc")});
  });
  // Without its line in metrics.jsonl an evaluation is half written or belongs to steps that were taken back.
  const auto known = [&](const TranscriptRow& row) {
    return std::ranges::any_of(run.evaluations, [&](const Record& e) { return e.step == row.step; });
  };
  if (!rows.empty() && !known(rows.front())) rows.clear();
  run.transcripts = std::move(rows);
}

double seconds_since_1970(std::filesystem::file_time_type time) {
  return std::chrono::duration<double>(std::chrono::file_clock::to_sys(time).time_since_epoch()).count();
}

}  // namespace

const std::vector<double>* Run::column(std::string_view key) const {
  const auto found = columns.find(key);
  return found == columns.end() ? nullptr : &found->second;
}

Run read_run(const std::filesystem::path& folder) {
  require(std::filesystem::is_directory(folder), "report", folder.string(), " is no folder");
  const auto metrics = folder / "metrics.jsonl";
  require(std::filesystem::exists(metrics), "report", folder.string(),
          " has no metrics.jsonl: it is no run of `chorus train`, or one that hasn't begun");
  Run run;
  run.folder = folder;
  run.name = std::filesystem::weakly_canonical(folder).filename().string();
  run.written = seconds_since_1970(std::filesystem::last_write_time(metrics));
  MetricsReader reader(run);
  for_each_line(metrics, run.remarks, [&](const json& line, std::int64_t step) { reader.use(line, step); });
  require(!run.steps.empty(), "report", metrics.string(), " holds no step yet");
  for (auto& [key, values] : run.columns) values.resize(run.steps.size(), no_value);
  if (std::filesystem::exists(folder / "transcripts.jsonl")) read_transcripts(folder / "transcripts.jsonl", run);
  if (std::filesystem::exists(folder / "config.toml")) run.config = read_file(folder / "config.toml");
  return run;
}

}  // namespace chorus::report
