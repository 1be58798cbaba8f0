// Files whose every failure names the file and the system's reason, and which reach the disk when they are told to.
#pragma once
#include <chorus/core/error.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace chorus {

/// An open descriptor. Short transfers are continued and interrupted calls repeated. A write that finds the disk full says how
/// much it has written, how much it needs and how much is free.
class PosixFile {
 public:
  static PosixFile open(const std::filesystem::path& path);  ///< for reading
  /// For writing; an existing file is an error. `needed`: bytes it will have, for messages; 0 where nobody knows.
  static PosixFile create(const std::filesystem::path& path, std::uint64_t needed = 0);
  static PosixFile append(const std::filesystem::path& path);  ///< for writing at the end; made if it isn't there
  /// For reading and `write_at`, in `folder`. Its name begins with `name` and is removed at once: the file goes when it is
  /// closed.
  static PosixFile temporary(const std::filesystem::path& folder, const std::string& name);
  ~PosixFile();
  PosixFile(PosixFile&& other) noexcept;
  PosixFile& operator=(PosixFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t bytes() const;
  void write(const void* data, std::size_t bytes);  ///< appends
  /// Appends what one call takes, at least a byte of `bytes` > 0, and returns how much that was.
  std::size_t write_some(const void* data, std::size_t bytes);
  void write_at(const void* data, std::size_t bytes, std::uint64_t position);  ///< of a `temporary`
  void read(void* data, std::size_t bytes, std::uint64_t position) const;      ///< fewer bytes than asked for is an error
  /// Room on the disk for so many bytes, which read as zeros: a file of that size, or an error with what is free.
  void reserve(std::uint64_t bytes);
  void* map(std::size_t bytes) const;  ///< the first of them, for reading and writing; to be unmapped by the caller
  /// Begins to write to the disk what was changed in [position, position + bytes) through a mapping, after what was begun
  /// before has ended; an error of that is thrown.
  void start_writing(std::uint64_t position, std::uint64_t bytes) const;
  void flush();  ///< to the disk
  /// Flushes to the disk and closes; reports what a delayed write has to report.
  void commit();

 private:
  PosixFile(int descriptor, std::filesystem::path path, std::uint64_t needed = 0)
      : descriptor_(descriptor), path_(std::move(path)), needed_(needed) {}
  int descriptor_;
  std::filesystem::path path_;
  std::uint64_t needed_ = 0, written_ = 0;
};

/// Throws "<op>: cannot <action> <path>: <reason> (errno <n>)" from the current errno, and what it would take to succeed where
/// that can be said.
[[noreturn]] void fail_errno(At at, std::string_view action, const std::filesystem::path& path);

/// The whole file; one of more than `most` bytes is an error, before anything is read.
std::string read_file(const std::filesystem::path& path, std::uint64_t most = UINT64_MAX);
/// Writes a new file and flushes it to the disk. A failure leaves no file.
void write_file(const std::filesystem::path& path, std::string_view text);
/// Writes a whole file so that a reader finds the old content or the new, never a part, also after a power failure: the way of
/// all files that are written in one piece. A failure leaves the old content and nothing else.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);
/// Makes folders as needed; a failure names the one that can't be made.
void make_folders(const std::filesystem::path& path);
/// The folder itself or the nearest one around it that is there: on the same file system as it will be.
std::filesystem::path existing_folder_around(const std::filesystem::path& path);
/// Makes one folder that isn't there yet.
void make_new_folder(const std::filesystem::path& path);
/// Removes a file if it is there.
void remove_file(const std::filesystem::path& path);
/// Makes creations, renames and removals in a folder durable.
void sync_folder(const std::filesystem::path& path);
/// Atomic within a file system. A non-empty folder is never replaced: that is an error.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace chorus
