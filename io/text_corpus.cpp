#include <chorus/core/error.h>
#include <chorus/core/posix_file.h>
#include <chorus/io/md5.h>
#include <chorus/io/text_corpus.h>
#include <utf8proc.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

namespace chorus {
namespace {

std::string unpacked(const std::filesystem::path& file) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> in(gzopen(file.c_str(), "rb"), gzclose);
  require(in != nullptr, "read_text", "cannot open ", file.string());
  require(gzdirect(in.get()) == 0, "read_text", file.string(), " is no gzip file");
  std::string text;
  std::array<char, 1 << 16> buffer;
  int got = 0;
  while ((got = gzread(in.get(), buffer.data(), buffer.size())) > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  int code = Z_OK;
  const char* reason = gzerror(in.get(), &code);
  require(got == 0 && code == Z_OK, "read_text", file.string(), " is damaged after ", text.size(),
          " bytes: ", code == Z_OK ? "it ends too early" : reason);
  return text;
}

/// Bytes of the UTF-8 character at `at`, or 0 if there is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  utf8proc_int32_t character = 0;
  const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                       static_cast<utf8proc_ssize_t>(text.size() - at), &character);
  return length > 0 ? static_cast<std::size_t>(length) : 0;
}

std::int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; });
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v'; }

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  return lines;
}

std::vector<std::string> paragraphs_of(std::string_view document) {
  std::vector<std::string> paragraphs;
  bool open = false;
  for (const auto line : lines_of(document)) {
    if (line.find_first_not_of(" \t\f\v") == line.npos) {
      open = false;
      continue;
    }
    if (!open || line.front() == ' ' || line.front() == '\t') paragraphs.emplace_back();
    open = true;
    std::string& paragraph = paragraphs.back();
    bool space = !paragraph.empty();
    for (const char c : line) {
      if (is_space(c)) {
        space = !paragraph.empty();
      } else {
        if (space) paragraph += ' ';
        space = false;
        paragraph += c;
      }
    }
  }
  return paragraphs;
}

/// The bytes of `text` up to its best border within `most` characters: after a sentence that ends in the second half, else a
/// space, else anywhere.
std::size_t border(std::string_view text, std::int64_t most) {
  std::size_t limit = 0, sentence = 0, space = 0;
  for (std::int64_t n = 0; n <= most && limit < text.size(); ++n) {
    if (text[limit] == ' ' && limit > 0) {
      space = limit;
      if (std::string_view(".!?:;\"'").find(text[limit - 1]) != std::string_view::npos) sentence = limit;
    }
    if (n == most) break;
    limit += utf8_length(text, limit);
  }
  return 2 * sentence >= limit ? sentence : space > 0 ? space : limit;
}

}  // namespace

std::string read_text(const std::filesystem::path& file) {
  std::string text = file.extension() == ".gz" ? unpacked(file) : read_file(file);
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0)
      fail("read_text", file.string(), " is no UTF-8 at byte ", at, ", line ",
           1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'), "; convert it, e.g. with iconv");
    at += length;
  }
  return text;
}

std::vector<std::string> cut_text(std::string_view document, std::int64_t most) {
  require(most > 0, "cut_text", most, " characters a piece; at least 1 is needed");
  std::vector<std::string> pieces;
  std::int64_t filled = most;  // characters of the last piece; a full one takes no more
  const auto append = [&](std::string_view part) {
    const std::int64_t length = characters(part);
    if (pieces.empty() || filled + 1 + length > most) {
      pieces.emplace_back(part);
      filled = length;
    } else {
      pieces.back().append(1, ' ').append(part);
      filled += 1 + length;
    }
  };
  for (const std::string& paragraph : paragraphs_of(document)) {
    std::string_view rest = paragraph;
    while (characters(rest) > most) {
      const std::size_t cut = border(rest, most);
      append(rest.substr(0, cut));
      rest.remove_prefix(cut < rest.size() && rest[cut] == ' ' ? cut + 1 : cut);
    }
    if (!rest.empty()) append(rest);
  }
  return pieces;
}

TextCorpus read_text_corpus(std::span<const std::filesystem::path> files, const TextCorpusOptions& options) {
  require(options.heldout_one_in >= 2, "read_text_corpus", "one document in ", options.heldout_one_in,
          " held out; at least 2 is needed");
  TextCorpus corpus;
  std::set<std::string> seen;  // digests of the documents
  for (const auto& file : files) {
    const std::string text = read_text(file);
    std::int64_t number = 0;
    const auto add = [&](std::string_view document) {
      ++number;
      const auto pieces = cut_text(document, options.most_characters);
      if (pieces.empty()) {
        ++corpus.empty;
        return;
      }
      std::string whole;
      for (const auto& piece : pieces) whole += piece + '\n';
      if (!seen.insert(md5(whole)).second) {
        ++corpus.repeated;
        return;
      }
      const bool held = md5_modulo(whole, options.heldout_one_in) == 0;
      ++(held ? corpus.heldout_documents : corpus.documents);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        ManifestEntry entry{.audio = {}, .text = pieces[i]};
        entry.id = file.filename().string() + '#' + std::to_string(number) + '.' + std::to_string(i + 1);
        (held ? corpus.heldout : corpus.train).push_back(std::move(entry));
      }
    };
    if (options.separator.empty()) {
      add(text);
      continue;
    }
    std::string document;
    for (const auto line : lines_of(text)) {
      if (line == options.separator) {
        add(document);
        document.clear();
      } else {
        document.append(line).append(1, '\n');
      }
    }
    if (!document.empty()) add(document);
  }
  return corpus;
}

TextCorpus write_text_manifests(std::span<const std::filesystem::path> files, const TextCorpusOptions& options,
                                const std::filesystem::path& folder) {
  TextCorpus corpus = read_text_corpus(files, options);
  require(!corpus.train.empty() && !corpus.heldout.empty(), "write_text_manifests", corpus.documents,
          " documents to train on and ", corpus.heldout_documents, " held out from ", files.size(),
          " files; both are needed: give more files, or a separator that ", "cuts them into documents");
  std::filesystem::create_directories(folder);
  write_manifest(folder / "train.jsonl", corpus.train);
  write_manifest(folder / "heldout.jsonl", corpus.heldout);
  return corpus;
}

}  // namespace chorus
