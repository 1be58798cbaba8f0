#include <chorus/core/config/check.h>
#include <chorus/core/error.h>
#include <chorus/io/check_sound.h>
#include <chorus/io/check_text.h>
#include <chorus/io/inputs.h>
#include <chorus/io/shards.h>
#include <chorus/io/unicode.h>

#include <algorithm>
#include <regex>
#include <tuple>

namespace chorus {
namespace {

/// One entry and what reading its sound told.
struct Checked {
  ManifestEntry entry;
  std::string manifest, words;  // plain_words of its text
  bool heldout = false;
  SoundCheck sound;
};

class Checker {
 public:
  explicit Checker(const CheckOptions& options) : options_(options) {}

  void read(const std::filesystem::path& manifest, bool heldout) {
    const std::string name = manifest.string();
    report_.manifests[name];
    InputConfig input;
    input.manifest_filepath = name;
    input.tarred_audio_filepaths = options_.tars;
    try {
      for (ManifestEntry& entry : read_input(
               input, Content::speech, [&](const std::string& line) { error("shard", name, line); }, 0,
               [&](const std::string& line) { error("bad line", name, line); }))
        entries_.push_back({std::move(entry), name, "", heldout, {}});
    } catch (const std::exception& e) {
      error("manifest", name, e.what());
    }
  }

  CheckReport run() {
    const auto count = static_cast<std::int64_t>(entries_.size());
#pragma omp parallel for schedule(dynamic, 8) num_threads(std::max(1, options_.threads))
    for (std::int64_t i = 0; i < count; ++i) entries_[i].sound = check_sound(entries_[i].entry, options_.deep);
    for (Checked& c : entries_) one(c);
    equal_ids();
    equal_sound();
    equal_texts();
    speech_rates();
    if (report_.sample_rates.size() > 1) {
      std::string rates;
      for (const auto& [rate, n] : report_.sample_rates)
        rates += (rates.empty() ? "" : ", ") + std::to_string(n) + " of " + std::to_string(rate) + " Hz";
      warning("sample rates", "all manifests", rates + ": all are brought to features.sample_rate");
    }
    // Where in the source an error was found is of no use here.
    static const std::regex source(R"(  \[\w+\.(cpp|h):\d+\])");
    for (Finding& f : report_.findings) f.text = std::regex_replace(f.text, source, "");
    std::stable_sort(report_.findings.begin(), report_.findings.end(), [](const Finding& a, const Finding& b) {
      return std::tie(a.severity, a.kind) < std::tie(b.severity, b.kind);
    });
    return std::move(report_);
  }

 private:
  void error(std::string kind, std::string where, std::string text) {
    report_.findings.push_back({Severity::error, std::move(kind), std::move(where), std::move(text)});
  }
  void warning(std::string kind, std::string where, std::string text) {
    report_.findings.push_back({Severity::warning, std::move(kind), std::move(where), std::move(text)});
  }

  void one(Checked& c) {
    std::vector<Finding> found = check_text(c.entry.text);
    found.insert(found.end(), c.sound.findings.begin(), c.sound.findings.end());
    for (Finding& f : found) {
      f.where = place(c.entry);
      report_.findings.push_back(std::move(f));
    }
    c.words = plain_words(c.entry.text);
    const std::u32string letters = code_points(c.entry.text);
    for (const char32_t letter : letters) ++report_.characters[letter];
    for (CorpusTotals* t : {&report_.manifests[c.manifest], &report_.languages[c.entry.lang]}) {
      ++t->entries;
      t->characters += static_cast<std::int64_t>(letters.size());
      t->seconds += std::max(0.0, c.sound.seconds);
      if (!c.entry.speaker.empty()) t->speakers.insert(c.entry.speaker);
    }
    if (c.sound.sample_rate > 0) ++report_.sample_rates[c.sound.sample_rate];
    if (c.sound.seconds >= 0) report_.durations.push_back(c.sound.seconds);
  }

  void equal_ids() {
    std::map<std::pair<std::string, std::string>, const Checked*> first;
    for (const Checked& c : entries_) {
      if (c.entry.id.empty()) continue;
      const auto [it, fresh] = first.emplace(std::pair(c.manifest, c.entry.id), &c);
      if (!fresh) error("equal ids", place(c.entry), "id '" + c.entry.id + "' is also that of " + place(it->second->entry));
    }
  }

  /// Entries with the same key: an error where a held-out one meets one to train on, else a warning.
  template <class Key>
  void equal(const char* kind, const char* leak, Key key, const char* what) {
    std::map<std::string, std::vector<const Checked*>> groups;
    for (const Checked& c : entries_)
      if (std::string k = key(c); !k.empty()) groups[std::move(k)].push_back(&c);
    for (const auto& [k, group] : groups) {
      if (group.size() < 2) continue;
      const auto held = std::ranges::find_if(group, [](const Checked* c) { return c->heldout; });
      const auto train = std::ranges::find_if(group, [](const Checked* c) { return !c->heldout; });
      if (held != group.end() && train != group.end()) {
        error(leak, place((*held)->entry),
              config::joined("its ", what, " is also that of ", place((*train)->entry), " to train on: ", k));
      } else {
        warning(kind, place(group[0]->entry),
                config::joined(group.size(), " entries have the ", what, ' ', k, ", the second is ", place(group[1]->entry)));
      }
    }
  }
  void equal_sound() {
    equal(
        "repeated sound", "sound straddles",
        [](const Checked& c) {
          if (!c.sound.digest.empty()) return "of digest " + c.sound.digest;
          return config::joined(audio_name(c.entry).string(), " from ", c.entry.offset, " s", c.entry.duration < 0 ? " on" : "",
                                c.entry.duration < 0 ? "" : config::joined(" for ", c.entry.duration, " s"));
        },
        "sound");
  }
  void equal_texts() {
    // Within a language: "no" is a word of several.
    equal(
        "repeated text", "text straddles",
        [](const Checked& c) {
          return c.words.empty() ? "" : c.entry.lang + (c.entry.lang.empty() ? "'" : ": '") + c.words + "'";
        },
        "text");
  }

  /// Beside the median of its language: a third of it or three times as much is a wrong text or a wrong sound more often than
  /// not. Short texts vary more than that by nature.
  void speech_rates() {
    constexpr std::size_t enough = 10;
    std::map<std::string, std::vector<double>> rates;
    const auto rate = [](const Checked& c) { return static_cast<double>(code_points(c.words).size()) / c.sound.seconds; };
    const auto counts = [](const Checked& c) { return c.sound.seconds > 0 && code_points(c.words).size() >= enough; };
    for (const Checked& c : entries_)
      if (counts(c)) rates[c.entry.lang].push_back(rate(c));
    for (auto& [language, all] : rates) std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
    for (const Checked& c : entries_) {
      if (!counts(c)) continue;
      const std::vector<double>& all = rates[c.entry.lang];
      const double median = all[all.size() / 2];
      if (rate(c) > 3 * median || rate(c) < median / 3)
        warning("speech rate", place(c.entry),
                config::joined(rate(c), " characters a second, the median is ", median, ": '", c.words, "'"));
    }
  }

  CheckOptions options_;
  CheckReport report_;
  std::vector<Checked> entries_;
};

}  // namespace

std::int64_t CheckReport::count(Severity severity) const {
  return std::ranges::count_if(findings, [&](const Finding& f) { return f.severity == severity; });
}

CheckReport check_manifests(std::span<const std::filesystem::path> train, std::span<const std::filesystem::path> heldout,
                            const CheckOptions& options) {
  Checker checker(options);
  for (const auto& manifest : train) checker.read(manifest, false);
  for (const auto& manifest : heldout) checker.read(manifest, true);
  return checker.run();
}

}  // namespace chorus
