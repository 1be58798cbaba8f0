// Lists of names and texts.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace chorus {

struct ListedText {
  std::string name, text, lang{}, speaker{};
  std::size_t line = 0;
};

/// See import_folder. Errors: a file that can't be read, a header without a needed column, broken UTF-8 (with the line).
std::vector<ListedText> read_text_list(const std::filesystem::path& file);

/// Records of RFC 4180 with their first line; fields may be quoted and then hold separators, line ends and doubled quotes.
struct CsvRecord {
  std::vector<std::string> fields;
  std::size_t line = 0;
};
std::vector<CsvRecord> parse_csv(const std::string& text, char separator);

/// Without white space at its ends.
std::string trimmed_text(std::string_view text);

}  // namespace chorus
