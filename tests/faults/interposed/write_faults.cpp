#include "faults/interposed/write_faults.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>

namespace chorus::testing {
namespace {

struct Fault {
  bool armed = false;
  std::string call = "any", path;
  long at = 1, count = LONG_MAX, seen = 0;
  int code = 0;
  std::size_t most = 0;
  long delay = 0, room = -1;
};

std::mutex mutex;

Fault parse(const std::string& text) {
  Fault fault;
  std::istringstream in(text);
  for (std::string part; in >> part;) {
    const auto equals = part.find('=');
    const std::string key = part.substr(0, equals), value = equals == part.npos ? "" : part.substr(equals + 1);
    const long number = std::atol(value.c_str());
    fault.armed = true;
    if (key == "call")
      fault.call = value;
    else if (key == "path")
      fault.path = value;
    else if (key == "at")
      fault.at = number;
    else if (key == "count")
      fault.count = number;
    else if (key == "errno")
      fault.code = static_cast<int>(number);
    else if (key == "most")
      fault.most = static_cast<std::size_t>(number);
    else if (key == "room")
      fault.room = number;
    else if (key == "delay")
      fault.delay = number;
    else {
      // A misspelt fault would be a test of nothing.
      std::fprintf(stderr, "CHORUS_FAULT: unknown key in '%s'\n", part.c_str());
      std::abort();
    }
  }
  return fault;
}

/// The fault of this process; from outside at first.
Fault& fault() {
  static Fault one = parse(std::getenv("CHORUS_FAULT") ? std::getenv("CHORUS_FAULT") : "");
  return one;
}

struct Verdict {
  bool fails = false;
  std::size_t most = 0;  ///< bytes that a write takes; 0: all
};

Verdict judge(const char* call, const std::string& path, std::size_t bytes = 0) {
  long delay = 0;
  Verdict verdict;
  {
    const std::lock_guard lock(mutex);
    Fault& f = fault();
    if (!f.armed || (f.call != "any" && f.call != call) || path.find(f.path) == path.npos) return {};
    ++f.seen;
    if (f.seen < f.at || f.seen - f.at >= f.count) return {};
    verdict = {f.code != 0, f.most};
    if (f.room >= 0 && bytes > 0) {
      const long n = std::min(f.room, static_cast<long>(bytes));
      verdict = {n == 0, static_cast<std::size_t>(n)};
      f.room -= n;
      if (n == 0 && f.code == 0) f.code = ENOSPC;
    }
    delay = f.delay;
    if (verdict.fails) errno = f.code;
  }
  if (delay > 0) {
    const int code = errno;
    const timespec time{delay / 1000, delay % 1000 * 1'000'000};
    ::nanosleep(&time, nullptr);
    errno = code;
  }
  return verdict;
}

/// The path of an open descriptor; sockets and pipes have names too.
std::string path_of(int descriptor) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t n = ::readlink(link, path, sizeof path);
  return n > 0 ? std::string(path, static_cast<std::size_t>(n)) : std::string();
}

std::string path_at(int folder, const char* path) {
  return folder == AT_FDCWD || *path == '/' ? std::string(path) : path_of(folder) + '/' + path;
}

/// The function that ours stands in front of.
template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

int open_file(int folder, const char* path, int flags, mode_t mode) {
  if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0 && judge("open", path_at(folder, path)).fails) return -1;
  static const auto openat_real = real<int(int, const char*, int, ...)>("openat");
  return openat_real(folder, path, flags, mode);
}

template <class F, class... Args>
auto guarded(const char* call, const std::string& path, const char* name, Args... args) {
  using R = decltype(std::declval<F>()(args...));
  if (judge(call, path).fails) return static_cast<R>(-1);
  return real<F>(name)(args...);
}

}  // namespace

void set_write_fault(const std::string& text) {
  const std::lock_guard lock(mutex);
  fault() = parse(text);
}

long matching_calls() {
  const std::lock_guard lock(mutex);
  return fault().seen;
}

}  // namespace chorus::testing

using namespace chorus::testing;

extern "C" {

#pragma GCC visibility push(default)

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_file(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & O_CREAT) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_file(AT_FDCWD, path, flags, mode);
}
FILE* fopen64(const char* path, const char* how) {
  if (std::string(how).find_first_of("wa+") != std::string::npos && judge("open", path).fails) return nullptr;
  return real<FILE*(const char*, const char*)>("fopen64")(path, how);
}
FILE* fopen(const char* path, const char* how) {
  if (std::string(how).find_first_of("wa+") != std::string::npos && judge("open", path).fails) return nullptr;
  return real<FILE*(const char*, const char*)>("fopen")(path, how);
}
ssize_t write(int file, const void* data, size_t bytes) {
  static const auto write_real = real<ssize_t(int, const void*, size_t)>("write");
  const Verdict verdict = judge("write", path_of(file), bytes);
  if (verdict.fails) return -1;
  return write_real(file, data, verdict.most ? std::min(verdict.most, bytes) : bytes);
}
ssize_t pwrite(int file, const void* data, size_t bytes, off_t at) {
  return guarded<ssize_t(int, const void*, size_t, off_t)>("write", path_of(file), "pwrite", file, data, bytes, at);
}
ssize_t writev(int file, const iovec* parts, int count) {
  return guarded<ssize_t(int, const iovec*, int)>("write", path_of(file), "writev", file, parts, count);
}
int fsync(int file) { return guarded<int(int)>("flush", path_of(file), "fsync", file); }
int fdatasync(int file) { return guarded<int(int)>("flush", path_of(file), "fdatasync", file); }
int rename(const char* from, const char* to) noexcept {
  return guarded<int(const char*, const char*)>("rename", std::string(from) + ' ' + to, "rename", from, to);
}
int mkdir(const char* path, mode_t mode) noexcept {
  return guarded<int(const char*, mode_t)>("mkdir", path, "mkdir", path, mode);
}
int unlink(const char* path) noexcept { return guarded<int(const char*)>("remove", path, "unlink", path); }
int rmdir(const char* path) noexcept { return guarded<int(const char*)>("remove", path, "rmdir", path); }
int remove(const char* path) noexcept { return guarded<int(const char*)>("remove", path, "remove", path); }
int unlinkat(int folder, const char* path, int flags) noexcept {
  return guarded<int(int, const char*, int)>("remove", path_at(folder, path), "unlinkat", folder, path, flags);
}
int truncate(const char* path, off_t bytes) noexcept {
  return guarded<int(const char*, off_t)>("truncate", path, "truncate", path, bytes);
}
int ftruncate(int file, off_t bytes) noexcept {
  return guarded<int(int, off_t)>("truncate", path_of(file), "ftruncate", file, bytes);
}

#pragma GCC visibility pop
}
