#include <chorus/apps/commands.h>
#include <chorus/io/asterisk.h>

#include <cstdio>

namespace chorus {
namespace {

struct AsteriskOptions {
  std::filesystem::path texts, sounds, out;
};

void print_part(const char* label, const std::vector<ManifestEntry>& entries) {
  double seconds = 0;
  std::size_t characters = 0;
  for (const auto& entry : entries) {
    seconds += entry.duration;
    characters += entry.text.size();
  }
  std::printf("%-9s %5zu recordings, %6.2f minutes, %6zu characters\n", label, entries.size(), seconds / 60, characters);
}

int run_asterisk(const AsteriskOptions& options) {
  const AsteriskCorpus corpus = write_asterisk_manifests(options.texts, options.sounds, options.out);
  print_part("train", corpus.train);
  print_part("held out", corpus.heldout);
  std::printf("left out: %d tones, %d without text, %d without sound, %d of unusable length\n", corpus.tones, corpus.no_text,
              corpus.no_sound, corpus.unusable);
  return 0;
}

}  // namespace

void add_data_command(CLI::App& app, int& status) {
  auto* command = app.add_subcommand("data", "Make manifests");
  command->require_subcommand(1);
  auto* asterisk = command->add_subcommand("asterisk", "Manifests of Debian's telephone prompts, a tenth held out");
  auto options = std::make_shared<AsteriskOptions>();
  asterisk->add_option("--texts", options->texts, "core-sounds-en.txt, unpacked")->required();
  asterisk->add_option("--sounds", options->sounds, "Folder of the .wav files")->required();
  asterisk->add_option("--out", options->out, "Folder for train.jsonl and heldout.jsonl")->required();
  asterisk->callback([options, &status] { status = run_asterisk(*options); });
}

}  // namespace chorus
