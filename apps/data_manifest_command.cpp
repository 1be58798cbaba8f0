#include <chorus/apps/commands.h>
#include <chorus/apps/findings.h>
#include <chorus/core/error.h>
#include <chorus/io/import.h>
#include <chorus/io/unicode.h>

#include <cstdio>

namespace chorus {
namespace {

Imported read_corpus(const DataManifestOptions& options) {
  if (!options.kaldi.empty()) return import_kaldi(options.kaldi);
  if (!options.tars.empty()) return import_tars(options.tars);
  require(!options.audio.empty(), "data manifest", "give --audio and --texts, --kaldi or --tar");
  return import_folder(options.audio, options.texts);
}

}  // namespace

int run_data_manifest(const DataManifestOptions& options) {
  Imported corpus = read_corpus(options);
  finish_import(corpus);
  require(!corpus.entries.empty(), "data manifest",
          "nothing can be used:", findings_text(corpus.left_out, options.limit, "left out"));
  std::vector<ManifestEntry> train, heldout;
  std::map<std::string, CorpusTotals> totals;
  for (ManifestEntry& entry : corpus.entries) {
    if (entry.lang.empty()) entry.lang = options.lang;
    const bool held = is_held_out(entry, options.holdout);
    CorpusTotals& t = totals[held ? "held out" : "train"];
    ++t.entries;
    t.seconds += entry.duration;
    t.characters += static_cast<std::int64_t>(code_points(entry.text).size());
    if (!entry.speaker.empty()) t.speakers.insert(entry.speaker);
    (held ? heldout : train).push_back(std::move(entry));
  }
  std::filesystem::create_directories(options.out);
  write_manifest(options.out / "train.jsonl", train);
  if (options.holdout > 0) write_manifest(options.out / "heldout.jsonl", heldout);
  std::printf("%s%s", totals_text("", totals).c_str(), findings_text(corpus.left_out, options.limit, "left out").c_str());
  return 0;
}

}  // namespace chorus
