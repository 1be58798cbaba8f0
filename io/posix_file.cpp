#include <chorus/io/posix_file.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace chorus {

void fail_errno(At at, std::string_view action, const std::filesystem::path& path) {
  const int code = errno;
  fail(at, "cannot ", action, ' ', path.string(), ": ", std::generic_category().message(code), " (errno ", code, ")");
}

PosixFile PosixFile::open(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_errno("PosixFile", "open", path);
  return {descriptor, path};
}

PosixFile PosixFile::create(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) fail_errno("PosixFile", "create", path);
  return {descriptor, path};
}

PosixFile::PosixFile(PosixFile&& other) noexcept : descriptor_(other.descriptor_), path_(std::move(other.path_)) {
  other.descriptor_ = -1;
}

PosixFile::~PosixFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::uint64_t PosixFile::bytes() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail_errno("PosixFile", "inspect", path_);
  return static_cast<std::uint64_t>(status.st_size);
}

void PosixFile::write(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto n = ::write(descriptor_, from, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("PosixFile", "write", path_);
    from += n;
    bytes -= static_cast<std::size_t>(n);
  }
}

void PosixFile::read(void* data, std::size_t bytes, std::uint64_t position) const {
  auto* into = static_cast<char*>(data);
  while (bytes > 0) {
    const auto n = ::pread(descriptor_, into, bytes, static_cast<off_t>(position));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("PosixFile", "read", path_);
    require(n > 0, "PosixFile", path_.string(), " ends at byte ", position, "; ", bytes, " more bytes were expected");
    into += n;
    position += static_cast<std::uint64_t>(n);
    bytes -= static_cast<std::size_t>(n);
  }
}

void PosixFile::commit() {
  if (::fsync(descriptor_) != 0) fail_errno("PosixFile", "flush", path_);
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail_errno("PosixFile", "close", path_);
}

std::string read_file(const std::filesystem::path& path) {
  const PosixFile file = PosixFile::open(path);
  std::string text(file.bytes(), '\0');
  file.read(text.data(), text.size(), 0);
  return text;
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  PosixFile file = PosixFile::create(path);
  file.write(text.data(), text.size());
  file.commit();
}

void sync_folder(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_errno("PosixFile", "open folder", path);
  // Some network file systems can't flush folders and say EINVAL; their renames are durable or nothing is.
  const bool failed = ::fsync(descriptor) != 0 && errno != EINVAL;
  const int code = errno;
  ::close(descriptor);
  errno = code;
  if (failed) fail_errno("PosixFile", "flush folder", path);
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) fail_errno("PosixFile", "rename " + from.string() + " to", to);
}

}  // namespace chorus
