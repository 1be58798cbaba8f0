// Training manifests. What is accepted can be written and is read again as it was.
// Instrumented: io/manifest.cpp io/unicode.cpp core/posix_file.cpp
#include <chorus/io/manifest.h>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace chorus;
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::accepts([&] {
    for (const ManifestEntry& entry : read_manifest(file.path())) {
      fuzz::must(!entry.audio.empty());
      fuzz::must(entry.offset >= 0);
    }
  });
  return 0;
}
