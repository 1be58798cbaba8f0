// Debian's recorded telephone prompts (packages asterisk-core-sounds-<lang> and -<lang>-wav; en, es, fr, it, ru) as corpora
// with fixed splits.
#pragma once
#include <chorus/io/manifest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

/// [..] (..) <..> removed; in English * -> star, # -> pound, www.x.org -> www dot x dot org, in French * -> étoile and
/// # -> dièse; then `plain_words` (io/unicode.h).
std::string normalize_prompt(std::string_view text, std::string_view lang = "en");

struct AsteriskCorpus {
  std::vector<ManifestEntry> train, heldout;
  int tones = 0;      ///< entries whose whole text is in brackets: tones and silences
  int no_text = 0;    ///< entries whose text normalises to nothing
  int unclear = 0;    ///< entries whose text doesn't tell what is said (is_unclear), or a name with two texts
  int no_sound = 0;   ///< texts without a sound file
  int unusable = 0;   ///< longer than 40 s, over 24 characters a second, or over 20 characters at under 4 a second
  int no_prompt = 0;  ///< sound files that no text names
};

/// Whether nobody can tell from this text what is said: words in [..] beside others, a '?' before a small letter (that is an
/// accented letter lost), the name of another prompt, a sign or an address whose reading is not known in this language.
bool is_unclear(std::string_view text, std::string_view lang);

/// Reads `texts` (core-sounds-<lang>.txt, unpacked: UTF-8, "name: text" lines, ';' comments) against `sounds`/<name>.wav.
/// Prompts of equal normalised text stay together; a group is held out where md5(its first name in byte order) % 10 == 0.
AsteriskCorpus read_asterisk(const std::filesystem::path& texts, const std::filesystem::path& sounds,
                             const std::string& lang = "en");

/// Writes train.jsonl and heldout.jsonl into `folder`, which is created.
AsteriskCorpus write_asterisk_manifests(const std::filesystem::path& texts, const std::filesystem::path& sounds,
                                        const std::filesystem::path& folder, const std::string& lang = "en");

}  // namespace chorus
