// Everything that is wrong or odd about corpora, found in one go.
#pragma once
#include <chorus/io/manifest.h>

#include <map>
#include <set>

namespace chorus {

enum class Severity { error, warning };

struct Finding {
  Severity severity = Severity::error;
  std::string kind;   ///< one word or two; findings of one kind are counted together
  std::string where;  ///< "train.jsonl:3", or a manifest
  std::string text;
};

struct CheckOptions {
  bool deep = false;  ///< read all samples, not only headers
  int threads = 1;    ///< for reading sound; results don't depend on it
  std::string tars;   ///< tarred_audio_filepaths of the manifests; empty: as they say themselves
};

struct CorpusTotals {
  std::int64_t entries = 0, characters = 0;
  double seconds = 0;
  std::set<std::string> speakers;
};

struct CheckReport {
  std::vector<Finding> findings;  ///< by kind, then in the order of manifests and lines
  std::map<std::string, CorpusTotals> manifests, languages;
  std::map<char32_t, std::int64_t> characters;
  std::map<int, std::int64_t> sample_rates;  ///< Hz, with so many entries
  std::vector<double> durations;             ///< seconds, of entries whose duration is known
  std::int64_t count(Severity severity) const;
};

/// Checks manifests to train on together with held-out ones. Errors: what makes an entry useless or a measurement dishonest
/// (bad lines, sound that is missing, damaged, not finite or shorter than the entry, equal ids, and texts or sound of a
/// held-out manifest in a training one). Warnings: what deserves a look (silence, clipping, several channels or rates, under
/// 0.1 s, no text, odd characters, letters of two scripts in a word, unusual speed of speech, repeated texts or sound). Never
/// throws for what is wrong with the data.
CheckReport check_manifests(std::span<const std::filesystem::path> train, std::span<const std::filesystem::path> heldout,
                            const CheckOptions& options);

}  // namespace chorus
