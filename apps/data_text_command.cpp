#include <chorus/apps/commands.h>
#include <chorus/io/text_corpus.h>

#include <cstdio>

namespace chorus {
namespace {

void print_part(const char* label, std::int64_t documents, const std::vector<ManifestEntry>& pieces) {
  std::size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.text.size();
  std::printf("%-9s %6lld documents, %6zu pieces, %9zu bytes\n", label, static_cast<long long>(documents), pieces.size(),
              bytes);
}

}  // namespace

int run_text_data(const TextDataOptions& options) {
  const TextCorpus corpus = write_text_manifests(options.files, options.cut, options.out);
  print_part("train", corpus.documents, corpus.train);
  print_part("held out", corpus.heldout_documents, corpus.heldout);
  std::printf("left out: %lld documents that repeat another, %lld without text\n", static_cast<long long>(corpus.repeated),
              static_cast<long long>(corpus.empty));
  return 0;
}

}  // namespace chorus
