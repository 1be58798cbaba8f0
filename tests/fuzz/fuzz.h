// Readers under fuzzing. Each source here defines `LLVMFuzzerTestOneInput` for one reader: whatever the bytes are, it returns,
// and what it refuses it refuses by an Error. `scripts/fuzz` links it with libFuzzer, the tests with a driver over the kept
// inputs. A line "// Instrumented: ..." names the sources that libFuzzer watches.
#pragma once
#include <chorus/core/error.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace chorus::fuzz {

/// A file in memory with these bytes, for readers that want a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("input", MFD_CLOEXEC)) {
    require(descriptor_ >= 0 && ::write(descriptor_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()), "fuzz",
            "no file in memory of ", bytes.size(), " bytes");
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Runs a reader that may refuse its input by an Error, and by nothing else.
template <class F>
bool accepts(F&& read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// What must hold for every input; a failure is a crash, which the fuzzer reports with the input.
inline void must(bool holds) {
  if (!holds) std::abort();
}

}  // namespace chorus::fuzz
