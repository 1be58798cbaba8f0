// Counts the instructions of each workload with callgrind and compares them with the committed counts.
//   instruction_counts WORKLOADS COUNTS FOLDER [update]
// WORKLOADS is that program, COUNTS the committed file, FOLDER a place for what callgrind writes. Ends with 0 when no workload
// takes more than it may, with 1 when one does, with 77 when the counts hold for another compiler or other libraries.
#include <chorus/core/error.h>
#include <chorus/core/posix_file.h>
#include <sys/wait.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <vector>

namespace chorus::testing {
namespace {

namespace fs = std::filesystem;

// A program takes the same number of instructions of its own in every run; those of libraries differ by some hundred with the
// addresses that their copies get. So these are limits of what a change may cost unnoticed, not of noise; other neighbours in a
// unit of compilation move a workload by 0.7 % at most. For libraries they are parts of the whole: some workloads hardly use
// any.
constexpr double may_grow = 0.02, may_shrink = 0.05;

struct Counts {
  double own = 0, libraries = 0;  ///< of the program itself; of oneDNN and what it generates, glibc, libgomp, libstdc++
  std::map<std::string, double> functions;  ///< own ones
};
using Workload = std::pair<std::string, Counts>;

std::string quoted(const fs::path& path) { return "'" + path.string() + "'"; }

/// Standard output of a command of the shell, without the last line break.
std::string output_of(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  require(pipe != nullptr, "instruction_counts", "cannot start ", command);
  std::string text;
  char part[4096];
  while (const std::size_t n = std::fread(part, 1, sizeof(part), pipe)) text.append(part, n);
  const int status = pclose(pipe);
  require(status == 0, "instruction_counts", command, " ended with ", WIFEXITED(status) ? WEXITSTATUS(status) : status);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

/// Sums the costs of a file of callgrind's format: lines "position cost" under "ob=" (whose code it is) and "fn=". The line
/// after "calls=" says what the called function took, which is counted where that one stands.
Counts read_callgrind(const fs::path& file, const std::string& program) {
  std::istringstream lines(read_file(file));
  Counts counts;
  std::string object, function;
  bool called = false;
  double total = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("totals: ")) total = std::stod(line.substr(8));
    if (line.starts_with("ob=")) object = line.substr(3);
    if (line.starts_with("fn=")) function = line.substr(3);
    if (line.starts_with("calls=")) {
      called = true;
    } else if (!line.empty() && std::isdigit(static_cast<unsigned char>(line[0]))) {
      const double cost = std::stod(line.substr(line.find(' ')));
      if (!called) (object == program ? counts.own : counts.libraries) += cost;
      if (!called && object == program) counts.functions[function] += cost;
      called = false;
    }
  }
  require(counts.own > 0 && counts.own + counts.libraries == total, "instruction_counts", file.string(), " sums to ",
          counts.own + counts.libraries, " instructions, ", counts.own, " of them in ", program, ", but says ", total);
  return counts;
}

std::vector<Workload> measure(const fs::path& program, const fs::path& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  // One thread, and of oneDNN what every x86-64 processor has: valgrind knows no AVX-512.
  const std::string names = output_of(
      "OMP_NUM_THREADS=1 ONEDNN_MAX_CPU_ISA=SSE41 valgrind -q --tool=callgrind --compress-strings=no --compress-pos=no "
      "--zero-before=chorus_counting_begins --dump-before=chorus_counting_ends --callgrind-out-file=" +
      quoted(folder / "counts") + ' ' + quoted(program));
  std::vector<Workload> workloads;
  std::istringstream lines(names);
  for (std::string name; std::getline(lines, name);)
    workloads.emplace_back(name, read_callgrind(folder / ("counts." + std::to_string(workloads.size() + 1)), program.string()));
  return workloads;
}

struct Committed {
  std::string conditions;
  std::map<std::string, Counts> counts;
};
constexpr const char* holds_for = "holds for ";

Committed read_committed(const fs::path& file) {
  Committed committed;
  if (!fs::exists(file)) return committed;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    Counts counts;
    if (line.starts_with(holds_for)) {
      committed.conditions = line.substr(std::string(holds_for).size());
    } else if (!line.starts_with('#')) {
      require(bool(words >> name >> counts.own >> counts.libraries), "instruction_counts", file.string(), ": '", line,
              "'; expected a name and two counts");
      committed.counts[name] = counts;
    }
  }
  return committed;
}

void write_committed(const fs::path& file, const std::string& conditions, const std::vector<Workload>& workloads) {
  std::ostringstream text;
  text << "# Written by scripts/test portable update, see docs/performance.md: instructions of the program itself, of "
          "libraries.\n"
       << holds_for << conditions << '\n';
  for (const auto& [name, counts] : workloads)
    text << name << ' ' << std::llround(counts.own) << ' ' << std::llround(counts.libraries / 1000) * 1000 << '\n';
  write_file_atomically(file, text.str());
}

std::string percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof(text), "%+.2f %%", 100 * (ratio - 1));
  return text;
}

/// What it spends most in, to look there first.
void print_functions(const Counts& counts) {
  std::vector<std::pair<double, std::string>> most;
  for (const auto& [function, cost] : counts.functions) most.push_back({cost, function});
  std::sort(most.rbegin(), most.rend());
  most.resize(std::min<std::size_t>(most.size(), 4));
  for (const auto& [cost, function] : most)
    std::cout << "    " << std::lround(100 * cost / counts.own) << " % of its own in " << function.substr(0, 140) << '\n';
}

bool compare(const std::vector<Workload>& workloads, const Committed& committed, const std::string& file) {
  const std::string update = "scripts/test portable update writes " + file + " anew";
  int grown = 0, shrunk = 0;
  std::pair<double, std::string> most{0, ""};
  for (const auto& [name, now] : workloads) {
    const auto found = committed.counts.find(name);
    require(found != committed.counts.end(), "instruction_counts", name, " is not in ", file, "; ", update);
    const Counts& then = found->second;
    const double own = now.own / then.own, both = then.own + then.libraries, more = (now.libraries - then.libraries) / both;
    const bool grew = own > 1 + may_grow || more > may_grow, less = own < 1 - may_shrink || more < -may_shrink;
    std::cout << name << ": own " << static_cast<long long>(now.own) << " (" << percent(own) << "), libraries "
              << static_cast<long long>(now.libraries) << " (" << percent(now.libraries / std::max(then.libraries, 1.0)) << ')'
              << (grew   ? " MORE THAN ALLOWED"
                  : less ? " far less"
                         : "")
              << '\n';
    if (own > 1 + may_grow) print_functions(now);
    grown += grew, shrunk += less;
    most = std::max(most, {own, name});
  }
  require(workloads.size() == committed.counts.size(), "instruction_counts", file, " has ", committed.counts.size(),
          " workloads, not ", workloads.size(), "; ", update);
  std::cout << "instructions: " << workloads.size() << " workloads, own ones at most " << percent(most.first) << " ("
            << most.second << ')';
  if (grown)
    std::cout << "; " << grown << " take over " << 100 * may_grow << " % more than committed: if that is wanted, " << update;
  if (shrunk) std::cout << "; " << shrunk << " take far less than committed: " << update;
  std::cout << '\n';
  return grown == 0;
}

int run(const std::vector<std::string>& arguments) {
  require(arguments.size() == 3 || (arguments.size() == 4 && arguments[3] == "update"), "instruction_counts",
          "takes WORKLOADS COUNTS FOLDER [update]");
  const fs::path program = fs::canonical(arguments[0]), file = arguments[1], folder = arguments[2];
  const std::string conditions = output_of(quoted(program) + " conditions") + ", " + output_of("valgrind --version");
  if (arguments.size() == 4) {
    write_committed(file, conditions, measure(program, folder));
    std::cout << "instructions: written to " << file.string() << '\n';
    return 0;
  }
  const Committed committed = read_committed(file);
  if (committed.conditions != conditions) {
    std::cout << "instructions: not compared: " << file.filename().string() << ' ' << holds_for << committed.conditions
              << "; here are " << conditions << '\n';
    return 77;
  }
  return compare(measure(program, folder), committed, file.filename().string()) ? 0 : 1;
}

}  // namespace
}  // namespace chorus::testing

int main(int argc, char** argv) {
  try {
    return chorus::testing::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    return std::cout << "instructions: " << error.what() << '\n', 1;
  }
}
