#include <chorus/core/error.h>
#include <chorus/core/text.h>
#include <chorus/io/metrics.h>
#include <chorus/io/unicode.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

namespace chorus {
namespace {

/// A number for every character, its bytes: edit distances compare them often.
std::u32string characters_of(std::string_view text) {
  std::u32string out;
  for (const std::string_view character : split_characters(text)) {
    char32_t number = 0;
    for (const char byte : character) number = number << 8 | static_cast<unsigned char>(byte);
    out.push_back(number);
  }
  return out;
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

void drop_unfinished_line(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return;
  std::uint64_t end = 0, size = 0;
  {
    const PosixFile file = PosixFile::open(path);
    end = size = file.bytes();
    std::array<char, 4096> block;
    while (end > 0) {
      const std::uint64_t n = std::min<std::uint64_t>(block.size(), end);
      file.read(block.data(), n, end - n);
      const auto newline = std::string_view(block.data(), n).rfind('\n');
      end -= n;
      if (newline == std::string_view::npos) continue;
      end += newline + 1;
      break;
    }
  }
  if (end < size && ::truncate(path.c_str(), static_cast<off_t>(end)) != 0)
    fail_errno("MetricsWriter", "remove the unfinished last line of", path);
}

template <class Sequence>
ErrorRate rate(const Sequence& reference, const Sequence& hypothesis) {
  using T = typename Sequence::value_type;
  const std::size_t errors = edit_distance(std::span<const T>(reference), std::span<const T>(hypothesis));
  return {static_cast<std::int64_t>(errors), static_cast<std::int64_t>(reference.size())};
}

}  // namespace

void TextScore::add(std::string_view reference, std::string_view hypothesis) {
  characters += rate(characters_of(reference), characters_of(hypothesis));
  words += rate(words_of(reference), words_of(hypothesis));
}

MetricsWriter::MetricsWriter(const std::filesystem::path& file, AppendFile::Report report)
    : out_((drop_unfinished_line(file), file), std::move(report)) {}

void MetricsWriter::write(std::span<const Field> fields) {
  nlohmann::ordered_json line = nlohmann::ordered_json::object();
  for (const auto& [name, value] : fields) {
    const double* number = std::get_if<double>(&value);
    if (number && !std::isfinite(*number))
      line[name] = std::isnan(*number) ? "nan" : *number > 0 ? "inf" : "-inf";
    else
      std::visit([&](const auto& v) { line[name] = v; }, value);
  }
  out_.append(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

}  // namespace chorus
