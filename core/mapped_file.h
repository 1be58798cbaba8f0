// Memory whose bytes lie in a file, for what is read and written once in a while, in order.
#pragma once
#include <chorus/core/posix_file.h>

namespace chorus {

/// A file without a name, in a folder that must exist, mapped into memory: zeros at first, gone however the program ends. Room
/// for all of it is taken at once, so a disk that is too small is an error here, with the bytes that are wanted and free, and
/// no signal later. Pages come into memory as they are touched and stay until `let_go`, or until the system wants their room.
class MappedFile {
 public:
  /// `bytes` > 0. The file's name, until it is removed, begins with `name`.
  MappedFile(const std::filesystem::path& folder, const std::string& name, std::size_t bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  void* data() const { return data_; }  ///< page-aligned
  std::size_t bytes() const { return bytes_; }
  /// Begins to write the pages around [begin, begin + bytes) to the disk and takes them out of this process's memory. They may
  /// stay in the system's cache as long as there is room. Throws what the disk had to say of writing them the last time.
  void let_go(std::size_t begin, std::size_t bytes) const;
  /// Begins to read them: the next to be touched.
  void expect(std::size_t begin, std::size_t bytes) const;

 private:
  PosixFile file_;
  std::size_t bytes_;
  char* data_;
};

}  // namespace chorus
