// Tokenizer models: SentencePiece itself, which is not instrumented, and what we check before it reads.
// Instrumented: io/tokenizer.cpp io/sentencepiece_check.cpp
#include <chorus/io/tokenizer.h>

#include <numeric>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace chorus;
  fuzz::accepts([&] {
    const Tokenizer tokenizer(std::string(fuzz::text_of(data, size)), "input");
    fuzz::must(tokenizer.size() > 0);
    for (const char* text : {"", "a", "hello there, world", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xFF\xFE"}) {
      for (const int id : tokenizer.encode(text)) fuzz::must(id >= 0 && id < tokenizer.size());
    }
    std::vector<int> ids(static_cast<std::size_t>(std::min(tokenizer.size(), 300)));
    std::iota(ids.begin(), ids.end(), 0);
    tokenizer.decode(ids);
    tokenizer.has("<|audio|>");
  });
  return 0;
}
