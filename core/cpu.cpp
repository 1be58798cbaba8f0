#include <chorus/core/cpu.h>
#include <chorus/core/error.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>

namespace chorus {
namespace {

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// Processor time this process may use at once, in cores, from the limit of its control group (version 2).
double quota() {
  std::string group = first_line("/proc/self/cgroup");
  group = group.starts_with("0::") ? group.substr(3) : "/";
  for (const std::string& folder : {"/sys/fs/cgroup" + group, std::string("/sys/fs/cgroup")}) {
    std::istringstream text(first_line(folder + "/cpu.max"));
    double time = 0, period = 0;
    if (text >> time >> period && period > 0) return time / period;
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace

CpuInfo parse_cpuinfo(std::string_view text) {
  CpuInfo info;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line) && (info.model.empty() || info.features.empty());) {
    const std::size_t colon = line.find(':');
    if (colon == line.npos) continue;
    const std::string value = line.substr(std::min(line.size(), colon + 2));
    if (line.starts_with("model name")) info.model = value;
    if (line.starts_with("flags") || line.starts_with("Features")) {
      std::istringstream words(value);
      info.features.insert(std::istream_iterator<std::string>(words), {});
    }
  }
  return info;
}

CpuInfo cpu_info() {
  std::ifstream in("/proc/cpuinfo");
  return parse_cpuinfo(std::string(std::istreambuf_iterator<char>(in), {}));
}

std::vector<std::string> build_features() {
  std::istringstream words(CHORUS_TARGET_FEATURES);
  return {std::istream_iterator<std::string>(words), {}};
}

void require_cpu(const CpuInfo& cpu, const std::vector<std::string>& needed) {
  std::string missing;
  for (const auto& feature : needed)
    if (!cpu.has(feature)) missing += ' ' + feature;
  require(missing.empty(), "require_cpu", "this build needs", missing, ", which ",
          cpu.model.empty() ? "this processor" : cpu.model,
          " does not have; configure with -DCHORUS_ARCH=native on this machine, or with a -march value that fits it");
}

int compute_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  // A machine with more processors than the set holds is refused by the call; then nothing is known and one thread is safe.
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  std::set<std::string> cores;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (!CPU_ISSET(i, &allowed)) continue;
    const std::string siblings =
        first_line("/sys/devices/system/cpu/cpu" + std::to_string(i) + "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? std::to_string(i) : siblings);
  }
  const double most = std::min(static_cast<double>(cores.size()), std::ceil(quota()));
  return std::max(1, static_cast<int>(most));
}

std::string describe(const CpuInfo& cpu, int threads) {
  std::ostringstream text;
  text << (cpu.model.empty() ? "unknown processor" : cpu.model);
  text << (cpu.avx512() ? ", AVX-512" : cpu.avx2() ? ", AVX2" : ", no AVX2");
  if (cpu.avx512_bf16()) text << ", bf16 instructions";
  if (cpu.amx_bf16()) text << ", AMX";
  text << ", " << threads << (threads == 1 ? " thread" : " threads");
  return text.str();
}

}  // namespace chorus
