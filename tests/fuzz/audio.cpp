// Sound files: libsndfile itself, which is not instrumented, and what we make of what it says.
// Instrumented: io/audio.cpp io/sound_file.cpp core/posix_file.cpp
#include <chorus/io/audio.h>

#include <cmath>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace chorus;
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  if (!fuzz::accepts([&] { fuzz::must(audio_info(file.path()).seconds() >= 0); })) return 0;
  fuzz::accepts([&] {
    for (const float sample : read_audio(file.path(), 8000)) fuzz::must(std::isfinite(sample));
  });
  fuzz::accepts([&] { read_audio(file.path(), 16000, 0.01, 0.05); });
  return 0;
}
