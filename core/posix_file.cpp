#include <chorus/core/posix_file.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace chorus {
namespace {

namespace fs = std::filesystem;

/// Repeats a call as long as signals interrupt it.
template <class F>
auto uninterrupted(F&& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

int open_or_fail(const fs::path& path, int flags, std::string_view action) {
  const int descriptor = uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
  if (descriptor < 0) fail_errno("PosixFile", action, path);
  return descriptor;
}

/// What would have to be different, where the reason alone doesn't say it.
std::string remedy(int code, const fs::path& path) {
  if (code == EROFS) return "; it needs a file system that can be written";
  if (code != ENOSPC) return {};
  // The file itself may not exist, or no longer.
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0 && ::statvfs(fs::absolute(path).parent_path().c_str(), &status) != 0) return {};
  return "; its file system has " + std::to_string(std::uint64_t{status.f_bavail} * status.f_frsize) + " bytes" +
         (status.f_files > 0 && status.f_favail == 0 ? " and no more files" : "") + " free";
}

std::string reason(int code, const fs::path& path) {
  return std::generic_category().message(code) + " (errno " + std::to_string(code) + ')' + remedy(code, path);
}

}  // namespace

void fail_errno(At at, std::string_view action, const fs::path& path) {
  const int code = errno;
  fail(at, "cannot ", action, ' ', path.string(), ": ", reason(code, path));
}

PosixFile PosixFile::open(const fs::path& path) { return {open_or_fail(path, O_RDONLY, "open"), path}; }

PosixFile PosixFile::create(const fs::path& path, std::uint64_t needed) {
  return {open_or_fail(path, O_WRONLY | O_CREAT | O_EXCL, "create"), path, needed};
}

PosixFile PosixFile::append(const fs::path& path) {
  return {open_or_fail(path, O_WRONLY | O_CREAT | O_APPEND, "append to"), path};
}

PosixFile PosixFile::temporary(const fs::path& folder, const std::string& name) {
  std::string path = (folder / (name + ".XXXXXX")).string();
  const int descriptor = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0) fail_errno("PosixFile", "create", path);
  PosixFile file(descriptor, path);
  if (::unlink(path.c_str()) != 0) fail_errno("PosixFile", "remove the name of", path);
  return file;
}

PosixFile::PosixFile(PosixFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      needed_(other.needed_),
      written_(other.written_) {}

PosixFile::~PosixFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::uint64_t PosixFile::bytes() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_errno("PosixFile", "inspect", path_);
  return static_cast<std::uint64_t>(status.st_size);
}

std::size_t PosixFile::write_some(const void* data, std::size_t bytes) {
  const auto n = uninterrupted([&] { return ::write(descriptor_, data, bytes); });
  if (n < 0) {
    const int code = errno;
    fail("PosixFile", "cannot write ", path_.string(), ": ", reason(code, path_), "; ", written_,
         needed_ ? " of the " + std::to_string(needed_) : std::string(), " bytes ", needed_ ? "that it needs " : "",
         "were written");
  }
  require(n > 0, "PosixFile", "cannot write ", path_.string(), ": the system took none of ", bytes, " bytes");
  written_ += static_cast<std::uint64_t>(n);
  return static_cast<std::size_t>(n);
}

void PosixFile::write(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const std::size_t n = write_some(from, bytes);
    from += n;
    bytes -= n;
  }
}

void PosixFile::write_at(const void* data, std::size_t bytes, std::uint64_t position) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto n = uninterrupted([&] { return ::pwrite(descriptor_, from, bytes, static_cast<off_t>(position)); });
    if (n < 0) fail_errno("PosixFile", "write " + std::to_string(bytes) + " bytes to", path_);
    require(n > 0, "PosixFile", "cannot write ", path_.string(), ": the system took none of ", bytes, " bytes");
    from += n;
    position += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::size_t>(n);
  }
}

void PosixFile::read(void* data, std::size_t bytes, std::uint64_t position) const {
  auto* into = static_cast<char*>(data);
  while (bytes > 0) {
    const auto n = uninterrupted([&] { return ::pread(descriptor_, into, bytes, static_cast<off_t>(position)); });
    if (n < 0) fail_errno("PosixFile", "read", path_);
    require(n > 0, "PosixFile", path_.string(), " ends at byte ", position, "; ", bytes, " more bytes were expected");
    into += n;
    position += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::size_t>(n);
  }
}

void PosixFile::reserve(std::uint64_t bytes) {
  int code;
  do {
    code = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
  } while (code == EINTR);
  if (code == 0) return;
  // Some file systems keep what they could get, which would be missing in what is said to be free.
  (void)uninterrupted([&] { return ::ftruncate(descriptor_, 0); });
  errno = code;
  fail_errno("PosixFile", "reserve " + std::to_string(bytes) + " bytes for", path_);
}

void* PosixFile::map(std::size_t bytes) const {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (data == MAP_FAILED) fail_errno("PosixFile", "map " + std::to_string(bytes) + " bytes of", path_);
  return data;
}

void PosixFile::start_writing(std::uint64_t position, std::uint64_t bytes) const {
  constexpr unsigned how = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE;
  if (uninterrupted(
          [&] { return ::sync_file_range(descriptor_, static_cast<off_t>(position), static_cast<off_t>(bytes), how); }) != 0)
    fail_errno("PosixFile", "write " + std::to_string(bytes) + " bytes to", path_);
}

void PosixFile::flush() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail_errno("PosixFile", "flush", path_);
}

void PosixFile::commit() {
  flush();
  // An interrupted close has closed, and what it might have reported the flush has reported.
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0 && errno != EINTR) fail_errno("PosixFile", "close", path_);
}

std::string read_file(const fs::path& path, std::uint64_t most) {
  const PosixFile file = PosixFile::open(path);
  const std::uint64_t bytes = file.bytes();
  require(bytes <= most, "read_file", path.string(), " has ", bytes, " bytes; at most ", most, " are expected");
  std::string text(bytes, '\0');
  file.read(text.data(), text.size(), 0);
  return text;
}

void write_file(const fs::path& path, std::string_view text) {
  PosixFile file = PosixFile::create(path, text.size());
  try {
    file.write(text.data(), text.size());
    file.commit();
  } catch (...) {
    ::unlink(path.c_str());  // a failure here is no news beside the first one
    throw;
  }
}

void write_file_atomically(const fs::path& path, std::string_view content) {
  const fs::path temporary = path.string() + ".tmp";
  remove_file(temporary);  // of a process that was killed here
  write_file(temporary, content);
  try {
    rename_path(temporary, path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(fs::absolute(path).parent_path());
}

void make_folders(const fs::path& path) {
  std::error_code error;
  do {
    fs::create_directories(path, error);
  } while (error == std::errc::interrupted);
  require(!error, "make_folders", "cannot create ", path.string(), ": ", reason(error.value(), path));
}

fs::path existing_folder_around(const fs::path& path) {
  fs::path there = fs::absolute(path);
  std::error_code ignored;  // what can't be looked at isn't there
  while (!fs::is_directory(there, ignored) && there.has_relative_path()) there = there.parent_path();
  return there;
}

void make_new_folder(const fs::path& path) {
  if (uninterrupted([&] { return ::mkdir(path.c_str(), 0777); }) != 0) fail_errno("PosixFile", "create folder", path);
}

void remove_file(const fs::path& path) {
  if (uninterrupted([&] { return ::unlink(path.c_str()); }) != 0 && errno != ENOENT) fail_errno("PosixFile", "remove", path);
}

void sync_folder(const fs::path& path) {
  const int descriptor = open_or_fail(path, O_RDONLY | O_DIRECTORY, "open folder");
  // Some network file systems can't flush folders and say EINVAL; their renames are durable or nothing is.
  const bool failed = uninterrupted([&] { return ::fsync(descriptor); }) != 0 && errno != EINVAL;
  const int code = errno;
  ::close(descriptor);
  errno = code;
  if (failed) fail_errno("PosixFile", "flush folder", path);
}

void rename_path(const fs::path& from, const fs::path& to) {
  if (uninterrupted([&] { return std::rename(from.c_str(), to.c_str()); }) != 0)
    fail_errno("PosixFile", "rename " + from.string() + " to", to);
}

}  // namespace chorus
