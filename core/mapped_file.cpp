#include <chorus/core/mapped_file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace chorus {
namespace {

struct Pages {
  std::size_t begin, bytes;
};

/// The whole pages around a range of a mapping of `size` bytes.
Pages pages_around(std::size_t begin, std::size_t bytes, std::size_t size) {
  require(begin <= size && bytes <= size - begin, "MappedFile", bytes, " bytes at ", begin, " of ", size);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t first = begin / page * page, end = std::min(size, (begin + bytes + page - 1) / page * page);
  return {first, bytes == 0 ? 0 : end - first};
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& folder, const std::string& name, std::size_t bytes)
    : file_(PosixFile::temporary(folder, name)), bytes_(bytes) {
  file_.reserve(bytes);
  data_ = static_cast<char*>(file_.map(bytes));
}

MappedFile::~MappedFile() { ::munmap(data_, bytes_); }

void MappedFile::let_go(std::size_t begin, std::size_t bytes) const {
  const Pages pages = pages_around(begin, bytes, bytes_);
  if (pages.bytes == 0) return;
  // The mapping remembers which pages were written until it is told to forget them: in this order the file hears of all.
  if (::madvise(data_ + pages.begin, pages.bytes, MADV_DONTNEED) != 0)
    fail_errno("MappedFile", "take out of memory the pages of", file_.path());
  file_.start_writing(pages.begin, pages.bytes);
}

void MappedFile::expect(std::size_t begin, std::size_t bytes) const {
  const Pages pages = pages_around(begin, bytes, bytes_);
  // An advice: where the system can't follow it, pages are read when they are touched.
  if (pages.bytes > 0) (void)::madvise(data_ + pages.begin, pages.bytes, MADV_WILLNEED);
}

}  // namespace chorus
