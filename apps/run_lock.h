// Two processes that train in one folder would mix their checkpoints and metrics.
#pragma once
#include <filesystem>

namespace chorus {

/// Holds `<folder>/run.lock` for its lifetime. The kernel lets go of it when the process dies, however that happens, so a
/// killed run can be started again at once. Throws when another process holds it.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int file_;
};

}  // namespace chorus
