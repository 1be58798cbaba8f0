#include <chorus/core/error.h>
#include <chorus/core/text.h>
#include <chorus/io/metrics.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

namespace chorus {
namespace {

/// Bytes that begin no valid sequence count as characters of their own.
std::u32string code_points(std::string_view text) {
  std::u32string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    char32_t point = length == 1 ? lead : lead & (0x7F >> length);
    int k = 1;
    while (k < length && i + k < text.size() && (text[i + k] & 0xC0) == 0x80)
      point = (point << 6) | (static_cast<unsigned char>(text[i + k++]) & 0x3F);
    out.push_back(point);
    i += k;
  }
  return out;
}

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

void drop_unfinished_line(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return;
  const std::streamoff size = in.tellg();
  std::streamoff end = size;
  while (end > 0 && in.seekg(end - 1).get() != '\n') --end;
  if (end < size) std::filesystem::resize_file(file, static_cast<std::uintmax_t>(end));
}

template <class Sequence>
ErrorRate rate(const Sequence& reference, const Sequence& hypothesis) {
  using T = typename Sequence::value_type;
  const std::size_t errors = edit_distance(std::span<const T>(reference), std::span<const T>(hypothesis));
  return {static_cast<std::int64_t>(errors), static_cast<std::int64_t>(reference.size())};
}

}  // namespace

void TextScore::add(std::string_view reference, std::string_view hypothesis) {
  characters += rate(code_points(reference), code_points(hypothesis));
  words += rate(words_of(reference), words_of(hypothesis));
}

MetricsWriter::MetricsWriter(const std::filesystem::path& file) : path_(file) {
  drop_unfinished_line(file);
  out_.open(file, std::ios::app);
  require(out_.good(), "MetricsWriter", "cannot append to ", file);
}

void MetricsWriter::write(std::span<const Field> fields) {
  nlohmann::ordered_json line = nlohmann::ordered_json::object();
  for (const auto& [name, value] : fields) {
    const double* number = std::get_if<double>(&value);
    if (number && !std::isfinite(*number))
      line[name] = std::isnan(*number) ? "nan" : *number > 0 ? "inf" : "-inf";
    else
      std::visit([&](const auto& v) { line[name] = v; }, value);
  }
  out_ << line.dump() << std::endl;
  require(out_.good(), "MetricsWriter", "writing ", path_, " failed");
}

}  // namespace chorus
