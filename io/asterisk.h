// Debian's recorded telephone prompts (packages asterisk-core-sounds-en and -en-wav) as a corpus with a fixed split.
#pragma once
#include <chorus/io/manifest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

/// Lower case, [..] (..) <..> removed, * -> star, # -> pound, www.x.org -> www dot x dot org, typographic apostrophes
/// -> ', everything but letters, digits and ' -> space, single spaces. English text: bytes beyond ASCII are spaces.
std::string normalize_prompt(std::string_view text);

struct AsteriskCorpus {
  std::vector<ManifestEntry> train, heldout;
  int tones = 0;     ///< entries whose text is in brackets: tones and silences
  int no_text = 0;   ///< entries whose text normalises to nothing
  int no_sound = 0;  ///< texts without a sound file
  int unusable = 0;  ///< longer than 40 s, over 24 characters a second, or over 20 characters at under 4 a second
};

/// Reads `texts` (core-sounds-en.txt, unpacked: "name: text" lines, ';' comments) against `sounds`/<name>.wav. Prompts of
/// equal normalised text stay together; a group is held out where md5(its first name in byte order) % 10 == 0.
AsteriskCorpus read_asterisk(const std::filesystem::path& texts, const std::filesystem::path& sounds);

/// Writes train.jsonl and heldout.jsonl into `folder`, which is created.
AsteriskCorpus write_asterisk_manifests(const std::filesystem::path& texts, const std::filesystem::path& sounds,
                                        const std::filesystem::path& folder);

}  // namespace chorus
