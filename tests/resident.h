// What of this process's memory is resident, as the system counts it.
#pragma once
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace chorus::testing {

/// Resident bytes of the mapping that begins at `address`; -1 where there is none, or the system doesn't tell.
inline std::int64_t resident_bytes_of(const void* address) {
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<std::uintptr_t>(address) << '-';
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(begin.str())) inside = true;
    if (inside && line.starts_with("Rss:")) return std::stoll(line.substr(4)) * 1024;
  }
  return -1;
}

/// VmRSS, VmHWM, ... in bytes; -1 where the system doesn't tell.
inline std::int64_t process_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key + ':')) return std::stoll(line.substr(key.size() + 1)) * 1024;
  return -1;
}

/// VmHWM begins again at what is resident now; false where the system can't.
inline bool reset_most_resident() { return static_cast<bool>(std::ofstream("/proc/self/clear_refs") << 5 << std::flush); }

}  // namespace chorus::testing
