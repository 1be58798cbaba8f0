// Error rates of a corpus, and metrics as JSON lines.
#pragma once
#include <chorus/io/append_file.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace chorus {

/// Sum of edit distances over sum of reference lengths; rates of parts add up by adding their counts.
struct ErrorRate {
  std::int64_t errors = 0, reference = 0;
  /// NaN without any reference.
  double value() const { return static_cast<double>(errors) / static_cast<double>(reference); }
  ErrorRate& operator+=(const ErrorRate& other) {
    errors += other.errors;
    reference += other.reference;
    return *this;
  }
};

/// Character and word error rates. Characters are Unicode code points, spaces included; words are what white space separates.
struct TextScore {
  ErrorRate characters, words;
  void add(std::string_view reference, std::string_view hypothesis);
};

/// Appends one JSON object per line and flushes each, so that a killed run keeps its lines. A last line without its end, which
/// a process that died while writing has left, is removed on opening. Numbers keep all their digits; NaN and infinities, which
/// JSON lacks, become the strings "nan", "inf" and "-inf"; bytes that are no UTF-8 become U+FFFD. A line that can't be written
/// waits for the next one if there is a `report` that is told, and throws otherwise (`AppendFile`). Not thread-safe.
class MetricsWriter {
 public:
  using Value = std::variant<double, std::int64_t, bool, std::string>;
  using Field = std::pair<std::string, Value>;
  explicit MetricsWriter(const std::filesystem::path& file, AppendFile::Report report = {});
  void write(std::span<const Field> fields);
  void write(std::initializer_list<Field> fields) { write(std::span<const Field>(fields.begin(), fields.size())); }
  /// Writes the lines that wait and flushes all to the disk; throws if any is missing.
  void finish() { out_.finish(); }

 private:
  AppendFile out_;
};

}  // namespace chorus
