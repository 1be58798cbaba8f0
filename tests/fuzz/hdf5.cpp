// HDF5 files as the library reads them, without the digests that keep damaged ones from it: what it finds are faults of the
// library (docs/fuzzing.md) or of our calls to it.
// Instrumented: io/hdf5.cpp io/digest.cpp
#include <chorus/core/posix_file.h>
#include <chorus/io/digest.h>
#include <chorus/io/hdf5.h>

#include "fuzz/fuzz.h"

namespace {

/// HDF5 wants the real path of what it opens, which a file in memory lacks.
class NamedFile {
 public:
  explicit NamedFile(std::string_view bytes)
      : path_(std::filesystem::temp_directory_path() / ("chorus-fuzz-" + std::to_string(::getpid()))) {
    std::filesystem::remove(path_);
    chorus::write_file(path_, bytes);
  }
  ~NamedFile() { std::filesystem::remove(path_); }
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace chorus;
  const NamedFile file(fuzz::text_of(data, size));
  static Context context;
  fuzz::accepts([&] {
    const Hdf5Seal seal{file.path().filename(), size, digest(data, size)};
    const Hdf5File hdf5(file.path(), std::span(&seal, 1));
    for (const Hdf5Dataset& dataset : hdf5.datasets())
      if (dataset.shape.numel() < 1 << 20) hdf5.read(context, dataset.path);
  });
  return 0;
}
