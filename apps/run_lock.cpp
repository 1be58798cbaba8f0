#include <chorus/apps/run_lock.h>
#include <chorus/core/posix_file.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace chorus {

RunLock::RunLock(const std::filesystem::path& folder) {
  make_folders(folder);
  const std::string path = folder / "run.lock";
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) fail_errno("run folder", "lock this folder by", path);
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  const int reason = errno;
  close(file_);
  require(reason == EWOULDBLOCK, "run folder", path, " can't be locked: ", std::strerror(reason));
  fail("run folder", "another process is training in ", folder.string(), "; wait for it or choose another trainer.output_dir");
}

RunLock::~RunLock() { close(file_); }

}  // namespace chorus
