// A file that records are added to while something more important goes on.
#pragma once
#include <chorus/core/posix_file.h>

#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace chorus {

/// Appends records in order and gives each to the system at once, so that a killed process keeps them. With a `report`, a
/// failed write ends nothing: records wait in memory, up to `most_waiting` bytes, and go out with the next one that can be
/// written; a record of which a part got through is continued where it stopped. `report` hears of the first failure of a bad
/// time, of its end, and of records that found no room to wait. Without one, a failed write throws. Not thread-safe.
class AppendFile {
 public:
  using Report = std::function<void(const std::string&)>;
  static constexpr std::size_t default_waiting = std::size_t{16} << 20;

  /// Makes the file if it isn't there. Throws where it can't be opened.
  explicit AppendFile(const std::filesystem::path& path, Report report = {}, std::size_t most_waiting = default_waiting);

  void append(std::string_view record);
  std::size_t waiting() const { return waiting_.size(); }  ///< records that are not in the file yet
  std::size_t dropped() const { return dropped_; }         ///< records that never will be
  /// Writes what waits and flushes all to the disk. Throws if a record is missing, saying how many and why.
  void finish();

 private:
  void write_waiting();
  PosixFile file_;
  Report report_;
  std::size_t most_waiting_;
  std::deque<std::string> waiting_;
  std::size_t waiting_bytes_ = 0, begun_ = 0;  ///< begun_: bytes of the first record that are in the file
  std::size_t dropped_ = 0;
  bool failing_ = false;
};

}  // namespace chorus
