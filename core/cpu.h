// What the processor has, what this build needs of it, and how many threads make sense.
#pragma once
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

struct CpuInfo {
  std::string model;
  std::set<std::string, std::less<>> features;  ///< by their names in /proc/cpuinfo: only what the operating system has enabled

  bool has(std::string_view feature) const { return features.contains(feature); }
  bool avx2() const { return has("avx2") && has("fma"); }
  bool avx512() const { return has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl"); }
  bool avx512_bf16() const { return has("avx512_bf16"); }
  bool amx_bf16() const { return has("amx_tile") && has("amx_bf16"); }
};

CpuInfo cpu_info();
/// The same from the text of /proc/cpuinfo.
CpuInfo parse_cpuinfo(std::string_view text);

/// Features that the compiler was allowed to use (`CHORUS_ARCH`), by the same names.
std::vector<std::string> build_features();
/// Throws `Error` naming what the build needs and the processor lacks: better than an illegal instruction later.
void require_cpu(const CpuInfo& cpu, const std::vector<std::string>& needed = build_features());

/// Threads for computing: the physical cores that this process may run on (two threads of one core share its vector
/// units), no more than its share of processor time (control group) allows. At least 1.
int compute_threads();

/// One line for the start: "Intel Xeon, AVX-512, bf16 instructions, 2 threads".
std::string describe(const CpuInfo& cpu, int threads);

}  // namespace chorus
