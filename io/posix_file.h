// Files whose every failure names the file and the system's reason, and which reach the disk when they are told to.
#pragma once
#include <chorus/core/error.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace chorus {

/// An open descriptor. Short transfers are continued and interrupted calls repeated.
class PosixFile {
 public:
  static PosixFile open(const std::filesystem::path& path);    ///< for reading
  static PosixFile create(const std::filesystem::path& path);  ///< for writing; an existing file is an error
  ~PosixFile();
  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t bytes() const;
  void write(const void* data, std::size_t bytes);                         ///< appends
  void read(void* data, std::size_t bytes, std::uint64_t position) const;  ///< fewer bytes than asked for is an error
  /// Flushes to the disk and closes; reports what a delayed write has to report.
  void commit();

 private:
  PosixFile(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_;
  std::filesystem::path path_;
};

/// Throws "<op>: cannot <action> <path>: <reason> (errno <n>)" from the current errno.
[[noreturn]] void fail_errno(At at, std::string_view action, const std::filesystem::path& path);

std::string read_file(const std::filesystem::path& path);
/// Writes a new file and flushes it to the disk.
void write_file(const std::filesystem::path& path, std::string_view text);
/// Makes creations, renames and removals in a folder durable.
void sync_folder(const std::filesystem::path& path);
/// Atomic within a file system. A non-empty folder is never replaced: that is an error.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace chorus
