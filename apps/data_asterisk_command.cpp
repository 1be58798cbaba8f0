#include <chorus/apps/commands.h>
#include <chorus/io/asterisk.h>
#include <chorus/io/unicode.h>

#include <cstdio>

namespace chorus {
namespace {

void print_part(const char* label, const std::vector<ManifestEntry>& entries) {
  double seconds = 0;
  std::size_t characters = 0;
  for (const auto& entry : entries) {
    seconds += entry.duration;
    characters += code_points(entry.text).size();
  }
  std::printf("%-9s %5zu recordings, %6.2f minutes, %6zu characters\n", label, entries.size(), seconds / 60, characters);
}

}  // namespace

int run_asterisk(const AsteriskOptions& options) {
  const AsteriskCorpus corpus = write_asterisk_manifests(options.texts, options.sounds, options.out, options.lang);
  print_part("train", corpus.train);
  print_part("held out", corpus.heldout);
  std::printf(
      "left out: %d tones, %d without text, %d of which it is unclear what is said, %d without sound, %d of unusable "
      "length; %d sound files without a prompt\n",
      corpus.tones, corpus.no_text, corpus.unclear, corpus.no_sound, corpus.unusable, corpus.no_prompt);
  return 0;
}

}  // namespace chorus
