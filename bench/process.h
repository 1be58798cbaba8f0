// What the system says about this process.
#pragma once
#include <chorus/core/error.h>
#include <sys/resource.h>

#include <fstream>
#include <string>

namespace chorus::bench {

/// A line of /proc/self/status in bytes: VmRSS (resident now) or VmHWM (the most that was resident).
inline double resident_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kibibytes = 0;
    if (word == key + ':' && status >> kibibytes) return kibibytes * 1024;
  }
  fail("bench", "/proc/self/status has no ", key);
}

inline long minor_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

}  // namespace chorus::bench
