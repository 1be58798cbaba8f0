// Manifests of checkpoints, under a digest that is right for whatever they say: damage never gets this far. What is accepted is
// written and read again as it was, and no tensor reaches beyond its file.
// Instrumented: io/checkpoint/manifest.cpp io/checkpoint/copy_box.cpp io/digest.cpp
#include <chorus/io/checkpoint/manifest.h>
#include <chorus/io/digest.h>

#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace chorus;
  const std::string rest(fuzz::text_of(data, size));
  fuzz::accepts([&] { parse_manifest(rest, "input"); });
  const std::string framed = "{\"digest\": \"" + digest(rest.data(), rest.size()) + "\",\n" + rest;
  fuzz::accepts([&] {
    const Manifest manifest = parse_manifest(framed, "input");
    check_coverage(manifest);
    for (const SavedTensor& tensor : manifest.tensors) {
      std::int64_t elements = 0;
      for (const SavedChunk& chunk : tensor.chunks) elements += chunk.shape.numel();
      fuzz::must(elements == tensor.shape.numel());
    }
    const std::string text = to_text(manifest);
    fuzz::must(to_text(parse_manifest(text, "written")) == text);
  });
  return 0;
}
