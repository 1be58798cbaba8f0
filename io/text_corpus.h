// Plain text as a corpus for the decoder alone: files cut into documents, documents into pieces, a part held out.
#pragma once
#include <chorus/io/manifest.h>

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chorus {

struct TextCorpusOptions {
  std::string separator;               ///< a line that consists of it ends a document; empty: each file is one document
  std::int64_t most_characters = 600;  ///< Unicode characters of a piece
  unsigned heldout_one_in = 20;        ///< a document is held out where md5(its text) % this == 0
};

struct TextCorpus {
  std::vector<ManifestEntry> train, heldout;  ///< pieces; ids are "file#document.piece", documents counted from 1
  std::int64_t documents = 0, heldout_documents = 0;
  std::int64_t repeated = 0;  ///< documents whose text was there before: left out, so that none is on both sides
  std::int64_t empty = 0;     ///< documents of nothing but white space
};

/// The whole text of a file, unpacked if its name ends in .gz. Errors name the file: it can't be read, is no gzip, or, with
/// the byte, is no UTF-8.
std::string read_text(const std::filesystem::path& file);

/// Cuts a document into pieces of at most `most` characters, in order and with nothing lost but white space, which becomes
/// single spaces. A piece takes whole paragraphs (what blank lines or indentation separate) while they fit; a longer one is
/// cut after a sentence that ends in its second half, else at a space, else anywhere.
std::vector<std::string> cut_text(std::string_view document, std::int64_t most);

TextCorpus read_text_corpus(std::span<const std::filesystem::path> files, const TextCorpusOptions& options);

/// Writes train.jsonl and heldout.jsonl into `folder`, which is created. A corpus without a train or held-out piece is an
/// error.
TextCorpus write_text_manifests(std::span<const std::filesystem::path> files, const TextCorpusOptions& options,
                                const std::filesystem::path& folder);

}  // namespace chorus
